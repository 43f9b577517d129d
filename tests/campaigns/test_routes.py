"""Whether an arm's schedules ran, from nothing but the names of counters."""

from __future__ import annotations

from campaigns.routes import Route, hits_name, is_refusal, refusal_name, routes, unasked

SCHEDULES = (("attention", "grouped"), ("gdn", "bv2"), ("selection", "scan"))
COUNTERS = {
    hits_name("gdn", "bv2"): 3,
    hits_name("attention", "gathered"): 7,
    hits_name("attention", "grouped"): 0,
    refusal_name("attention", "grouped", "41 rows; 1 to 8"): 5,
    refusal_name("attention", "grouped", "q is float32; only float16"): 2,
    refusal_name("attention", "grouped-too", "another schedule's"): 9,
    refusal_name("gdn", "bv2", "41 rows; 1 to 8"): 1,
    refusal_name("gdn", "bv2", "not met by this request"): 0,
}


def test_every_schedule_has_its_hits_and_its_own_refusals() -> None:
    assert routes(SCHEDULES, COUNTERS) == (
        Route("attention/grouped", 0, {"41 rows; 1 to 8": 5, "q is float32; only float16": 2}),
        Route("gdn/bv2", 3, {"41 rows; 1 to 8": 1}),
        Route("selection/scan", 0, {}),
    )


def test_only_a_schedule_that_was_called_and_never_ran_is_only_refused() -> None:
    assert [route.only_refused for route in routes(SCHEDULES, COUNTERS)] == [True, False, False]


def test_a_refusal_reads_as_a_phrase_and_is_told_from_a_hit() -> None:
    assert routes(SCHEDULES, COUNTERS)[1].told() == ["gdn/bv2 refused: 41 rows; 1 to 8 (1 call)"]
    assert is_refusal(refusal_name("gdn", "bv2", "x")) and not is_refusal(hits_name("gdn", "bv2"))


def test_what_prompts_ran_by_is_told_where_the_arm_does_not_name_it() -> None:
    ran = {hits_name("prefill_gdn", name): hits for name, hits in (("fla", 3), ("chunked", 0))}
    ran |= {hits_name("prefill_attention", "cudnn"): 2, refusal_name("prefill_gdn", "fla", "8 rows; at least 64"): 5}
    assert unasked(SCHEDULES, COUNTERS | ran) == (
        Route("prefill_attention/cudnn", 2, {}),
        Route("prefill_gdn/fla", 3, {}),
    )
    assert unasked((("prefill_gdn", "fla"),), ran) == (Route("prefill_attention/cudnn", 2, {}),)

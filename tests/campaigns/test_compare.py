"""Exactness of a pair, level by level, and where two answers part."""

import math
from dataclasses import replace

import pytest

from campaigns.exactness.compare import compare, divergence, exactness, required_level
from campaigns.hashes import token_sha256
from campaigns.plan import Arm, CampaignPlan, Fixture, PairKey, Role, ServerPlan, Step
from campaigns.reasons import Reason
from campaigns.records import Exactness
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver, without_engine

PLAN = CampaignPlan("unit", Arm("a"), Arm("b"), (Fixture("alpha", "{}", (0,)),), ServerPlan("null"))


def request(role, round_ms=16.0, **changes):
    driver = Driver(None, PLAN, lambda step, attempt: Script(Trajectory(30, 10, 19), round_ms))
    return replace(driver.request("c", Step(PairKey(0, "alpha", 0, 0), role, 0), 1, 1), **changes)


CONTROL = request(Role.CONTROL)


def with_ids(candidate, ids):
    return replace(candidate, token_ids=ids, token_sha256=token_sha256(ids), completion_tokens=len(ids))


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, Exactness.DRAFT_WIDTH),
        ({"drafted_sha256": "other"}, Exactness.ACCEPTANCE),
        ({"drafted_sha256": None}, Exactness.ACCEPTANCE),
        ({"accepted_sha256": "other"}, Exactness.STRUCTURE),
        ({"accepted_sha256": None}, Exactness.STRUCTURE),
        ({"emitted_sha256": "other"}, Exactness.STRUCTURE),
        ({"finish_reason": "length"}, Exactness.TOKEN_IDS),
        ({"tool_calls_json": '[{"name":"f"}]'}, Exactness.TOKEN_IDS),
        ({"token_sha256": "other"}, Exactness.TEXT),
        ({"token_ids": None, "token_sha256": None}, Exactness.TEXT),
        ({"completion_tokens": 31}, Exactness.TEXT),  # ids that do not add up prove nothing
        ({"text": "other"}, Exactness.NOT_COMPARED),
        ({"reasoning_text": "other"}, Exactness.NOT_COMPARED),
        ({"prompt_sha256": "other"}, Exactness.NOT_COMPARED),
        ({"first_content_ns": None}, Exactness.NOT_COMPARED),
        ({"reasons": (Reason.STALL,)}, Exactness.NOT_COMPARED),
    ],
)
def test_each_level_contains_the_ones_below(changes, level):
    assert exactness(CONTROL, request(Role.CANDIDATE, **changes)) is level


def test_unknown_sequences_on_both_sides_are_not_equal():
    silent = {"accepted_sha256": None}
    assert exactness(replace(CONTROL, **silent), request(Role.CANDIDATE, **silent)) is Exactness.STRUCTURE


def test_the_hash_is_a_version_byte_and_little_endian_words():
    import hashlib

    assert token_sha256((1, 258)) == hashlib.sha256(b"\x01\x01\x00\x00\x00\x02\x01\x00\x00").hexdigest()


@pytest.mark.parametrize(
    ("control", "candidate", "index", "ids"),
    [
        ((1, 2, 3), (1, 2, 3), None, None),
        ((1, 2, 3), (1, 9, 3), 1, (2, 9)),
        ((1, 2, 3), (1, 2), 2, (3, None)),
        ((), (5,), 0, (None, 5)),
        (None, (5,), None, None),
    ],
)
def test_first_divergence(control, candidate, index, ids):
    assert divergence(control, candidate) == (index, ids)


def test_a_diverging_pair_is_kept_and_excluded():
    ids = (*CONTROL.token_ids[:12], 77777, *CONTROL.token_ids[13:])
    pair = compare(CONTROL, with_ids(request(Role.CANDIDATE, text="other"), ids), Exactness.ACCEPTANCE)
    assert pair.divergence_index == 12 and pair.divergence_ids == (CONTROL.token_ids[12], 77777)
    assert not pair.admissible and pair.reasons == (Reason.BELOW_REQUIRED_EXACTNESS,)


def test_effect_is_the_log_ratio_of_request_averages():
    pair = compare(CONTROL, request(Role.CANDIDATE, 15.2), Exactness.ACCEPTANCE)
    assert pair.delta_log == pytest.approx(math.log(0.95), abs=1e-7)
    assert pair.delta_ns == pytest.approx(-0.8e6, abs=1)
    assert pair.admissible and pair.reasons == ()


def test_arms_with_other_numbers_of_rounds_are_compared_by_decode_time():
    """Half as many rounds, each a quarter longer: faster, though each of its rounds is slower."""
    candidate = request(Role.CANDIDATE, 20.0)
    candidate = replace(candidate, n_rounds=5, engine_decode_ns=candidate.engine_decode_ns // 2)
    pair = compare(CONTROL, candidate, Exactness.TEXT)
    assert pair.delta_log == pytest.approx(math.log(0.625), abs=1e-7)
    assert pair.delta_ns == pytest.approx(4e6, abs=1)
    assert compare(CONTROL, candidate, Exactness.TEXT, methodology=1).delta_log == pytest.approx(
        math.log(1.25), abs=1e-7
    )


def bundled(request, tokens, rounds):
    """The same answer at the same pace, its first chunk holding what the first rounds made."""
    client = without_engine(request)
    assert client.last_content_ns is not None
    decode_ns = 3_000_000 * rounds
    return replace(
        client,
        first_tokens=tokens,
        first_characters=2 * tokens,
        n_rounds=rounds,
        last_content_ns=client.first_content_ns + decode_ns,
        completion_tokens=16,
    )


def test_tokens_of_the_first_chunk_are_in_neither_number():
    """Both take 3 ms a round of one token; the candidate's first event bundles four. Version 2 told -20 %."""
    control, candidate = bundled(CONTROL, 1, 15), bundled(request(Role.CANDIDATE), 4, 12)
    pair = compare(control, candidate, Exactness.TEXT)
    assert pair.delta_log == pytest.approx(0, abs=1e-12) and pair.delta_ns == pytest.approx(0, abs=1)
    assert pair.admissible and Reason.FIRST_CHUNKS_DIFFER in pair.reasons
    assert compare(control, candidate, Exactness.TEXT, methodology=2).delta_log == pytest.approx(math.log(0.8))


def test_an_engines_decode_starts_behind_the_prefill_whatever_the_first_chunk_holds():
    candidate = replace(request(Role.CANDIDATE, 15.2), first_tokens=9, first_characters=40)
    pair = compare(CONTROL, candidate, Exactness.ACCEPTANCE)
    assert pair.delta_log == pytest.approx(math.log(0.95), abs=1e-7)
    assert pair.admissible and pair.reasons == (Reason.FIRST_CHUNKS_DIFFER,)


def test_without_ids_an_effect_needs_first_chunks_and_answers_of_one_length():
    bare = {"token_ids": None, "token_sha256": None, "first_tokens": None}
    control = replace(bundled(CONTROL, 1, 15), **bare)
    candidate = replace(bundled(request(Role.CANDIDATE), 1, 15), **bare)
    slower = replace(candidate, last_content_ns=candidate.last_content_ns + 4_500_000)
    assert compare(control, slower, Exactness.TEXT).delta_log == pytest.approx(math.log(1.1))
    for other in ({"first_characters": 8}, {"completion_tokens": 17}, {"first_tokens": 1}):
        assert compare(control, replace(slower, **other), Exactness.TEXT).delta_log is None


def test_a_first_chunk_that_was_held_back_gives_no_number():
    """10.88 against 0.013 ms once were an effect of -99.88 %."""
    late = {"admissible": False, "reasons": (Reason.FIRST_CHUNK_COALESCED,)}
    pair = compare(without_engine(CONTROL), replace(without_engine(request(Role.CANDIDATE)), **late), Exactness.TEXT)
    assert (pair.delta_log, pair.delta_ns, pair.admissible) == (None, None, False)
    assert pair.reasons == (Reason.FIRST_CHUNK_COALESCED, Reason.PARTNER_EXCLUDED)


def test_one_clock_for_both_arms():
    control = replace(CONTROL, last_content_ns=CONTROL.first_content_ns + 2 * CONTROL.engine_decode_ns)
    candidate = without_engine(request(Role.CANDIDATE, 15.2))
    pair = compare(control, candidate, Exactness.STRUCTURE)
    assert pair.delta_log == pytest.approx(math.log(15.2 / 32.0), abs=1e-6)  # the client's clock on both sides


def test_a_server_without_accepted_counts_is_held_to_e3():
    control, candidate = without_engine(CONTROL), without_engine(request(Role.CANDIDATE))
    assert required_level(4, control, candidate) is Exactness.STRUCTURE
    assert compare(control, candidate, 4).admissible
    assert required_level(4, CONTROL, candidate) is Exactness.ACCEPTANCE  # one side alone is a difference
    assert not compare(CONTROL, candidate, 4).admissible


def test_an_arm_that_drafts_nothing_has_no_accepted_counts_to_report():
    """As vLLM without a drafter beside vLLM with one that tells each step's drafts."""
    plain = without_engine(request(Role.CANDIDATE))
    plain = replace(plain, n_rounds=plain.completion_tokens - 1)
    assert required_level(4, CONTROL, plain) is Exactness.STRUCTURE
    assert compare(CONTROL, plain, 4).admissible


def test_a_partner_leaves_with_an_inadmissible_request():
    hit = request(Role.CANDIDATE, admissible=False, reasons=(Reason.CACHE_HIT,), cached_tokens=64)
    pair = compare(CONTROL, hit, Exactness.ACCEPTANCE)
    assert not pair.admissible and pair.reasons == (Reason.CACHE_HIT, Reason.PARTNER_EXCLUDED)
    assert pair.exactness is Exactness.DRAFT_WIDTH  # the answers themselves agree


def test_flags_do_not_exclude():
    capped = request(Role.CANDIDATE, reasons=(Reason.CAPPED,), median_sm_clock_mhz=1500)
    pair = compare(replace(CONTROL, median_sm_clock_mhz=1530), capped, Exactness.ACCEPTANCE)
    assert pair.admissible and pair.reasons == (Reason.CLOCK_MISMATCH,)
    near = replace(CONTROL, median_sm_clock_mhz=1510)
    assert compare(near, capped, Exactness.ACCEPTANCE).reasons == ()


def test_missing_ids_are_named_and_reach_e1_at_most():
    bare = {"token_ids": None, "token_sha256": None}
    pair = compare(replace(CONTROL, **bare), request(Role.CANDIDATE, **bare), Exactness.ACCEPTANCE)
    assert pair.exactness is Exactness.TEXT
    assert pair.reasons == (Reason.BELOW_REQUIRED_EXACTNESS, Reason.IDS_UNAVAILABLE)


def test_two_keys_are_no_pair():
    other = replace(request(Role.CANDIDATE), key=PairKey(1, "alpha", 0, 0))
    with pytest.raises(AssertionError):
        compare(CONTROL, other, 4)

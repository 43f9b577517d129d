"""vLLM's and SGLang's words on one request's drafts, in the shapes that their documentation and users show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from campaigns.exactness.compare import compare, exactness
from campaigns.plan import Fixture, Role, Sampling
from campaigns.reasons import Reason
from campaigns.records import Exactness, Request
from campaigns.routes import ACCEPTED, DRAFTED, DRAFTS
from orchestrator.measuring.speculation import Speculation, speculation
from orchestrator.servers.adapters import Ask, open_adapter
from orchestrator.servers.fields import Malformed

# As vLLM's page on per-request acceptance metrics shows it (0.32): `summary`.
SUMMARY = {
    "mean_acceptance_length": 1.2325581395348837,
    "draft_acceptance_rate": 0.07751937984496124,
    "acceptance_histogram": [39, 1, 0, 3],
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129,
    "num_spec_tokens": 3,
}
# As SGLang's pull request 33518 was answered with a capture of `return_spec_tokens_details`.
SGLANG = {
    "spec_accept_rate": 0.2930232558139535,
    "spec_accept_length": 2.4651162790697674,
    "spec_num_correct_drafts": 63,
    "spec_num_proposed_drafts": 215,
    "spec_verify_ct": 43,
    "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3],
}


def detailed(accepted: list[int], drafted: list[int]) -> dict[str, Any]:
    totals = {"num_spec_steps": len(accepted), "num_accepted_draft_tokens": sum(accepted)}
    return {**totals, "num_draft_tokens": sum(drafted), "per_step_accepted": accepted, "per_step_drafted": drafted}


def answer(wire: Any, chunks: list[list[int]], said: dict[str, Any] | None, *, total: int | None = None) -> Request:
    """A chunk of ids each, in a recv of its own, then usage with vLLM's metrics beside it."""
    events = [wire.text("x" * len(ids), ids, "stop" if ids is chunks[-1] else None) for ids in chunks]
    usage = wire.usage(total or sum(map(len, chunks))) | {"metrics": {"speculative_decoding": said}}
    script: list[Any] = [part for event in events for part in (wire.chunk(wire.event(event)), wire.PAUSE_S)]
    request: Request = wire.play(
        wire.HEAD, *script, wire.chunk(wire.event(usage)), wire.chunk(wire.event("[DONE]")) + wire.END
    ).request
    return request


def test_vllm_lists_every_round(wire: Any) -> None:
    """Prefill, then three steps that accepted 1, 0 and 2 drafts; the last was cut by the answer's end."""
    request = answer(wire, [[1], [2, 3], [4], [5, 6]], detailed([1, 0, 2], [3, 3, 3]))
    assert request.admissible, request.error
    assert [(r.accepted, r.drafted, r.emitted) for r in request.rounds] == [(1, 3, 2), (0, 3, 1), (2, 3, 2)]
    assert (request.n_rounds, request.counters) == (3, {DRAFTS: 3, DRAFTED: 9, ACCEPTED: 3})
    other = answer(wire, [[1], [2, 3], [4], [5, 6]], detailed([1, 0, 1], [3, 3, 2]))
    assert exactness(request, request) is Exactness.DRAFT_WIDTH
    assert exactness(request, other) is Exactness.STRUCTURE


def test_rounds_that_one_chunk_merged_are_counted(wire: Any) -> None:
    request = answer(wire, [[1], [2, 3, 4], [5, 6]], detailed([1, 0, 1], [3, 3, 3]))
    assert (request.n_rounds, len(request.rounds)) == (3, 2)
    assert Reason.CLIENT_ROUNDS_UNUSABLE in request.reasons and all(r.accepted is None for r in request.rounds)


def test_steps_without_a_draft_have_no_place(wire: Any) -> None:
    """Of four steps two proposed something: their acceptance compares the arms, and no row is given to them."""
    request = answer(wire, [[1], [2], [3, 4], [5], [6, 7]], detailed([1, 1], [2, 2]))
    assert (request.admissible, request.n_rounds) == (True, 4) and all(r.accepted is None for r in request.rounds)
    assert exactness(request, request) is Exactness.DRAFT_WIDTH and request.counters[DRAFTED] == 4


def test_more_tokens_than_the_answer_has_are_no_answer_of_it(wire: Any) -> None:
    request = answer(wire, [[1], [2, 3]], detailed([2, 2], [3, 3]))
    assert request.reasons == (Reason.EMITTED_MISMATCH,) and not request.admissible
    assert "accepted 4 drafts and emitted a token more in each of 2, but usage.completion_tokens is 3" in request.error


def test_totals_alone_prove_no_round(wire: Any) -> None:
    request = answer(wire, [[1], [2, 3]], SUMMARY)
    assert request.counters == {DRAFTS: 43, DRAFTED: 129, ACCEPTED: 10}
    assert (request.accepted_sha256, request.admissible) == (None, True)


def test_an_arm_that_drafts_nothing_is_compared_by_structure(wire: Any) -> None:
    chunks = [[1], [2], [3]]
    plain = replace(answer(wire, chunks, None), role=Role.CONTROL)
    drafting = replace(answer(wire, [[1], [2, 3]], detailed([1], [3])), role=Role.CANDIDATE, text=plain.text)
    pair = compare(plain, drafting, required=4)
    assert pair.exactness is Exactness.STRUCTURE and pair.admissible


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (detailed([1, 2], [3]), "per_step_accepted has 2 steps and per_step_drafted 1"),
        (detailed([4], [3]), r"per_step_accepted\[0\] is 4, which is more than the 3 drafted"),
        (detailed([1], [3]) | {"num_spec_steps": "many"}, "num_spec_steps is 'many'"),
        (detailed([1], [3]) | {"per_step_drafted": [2.0]}, r"per_step_drafted\[0\] is 2.0"),
        (3, "speculative_decoding is 3"),
    ],
)
def test_malformed_words_name_their_field(said: Any, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        speculation({"metrics": {"speculative_decoding": said}})


def test_sglang_tells_totals_and_the_ids_at_the_end(wire: Any) -> None:
    events = [wire.text("a"), wire.text("bc", finish="stop"), wire.usage(3)]
    last = {"choices": [], "sglext": {"spec_tokens_details": SGLANG, "input_ids": [7, 8, 9], "output_ids": [[1, 2, 3]]}}
    script: list[Any] = [part for event in events for part in (wire.chunk(wire.event(event)), wire.PAUSE_S)]
    tail = wire.chunk(wire.event(last)), wire.chunk(wire.event("[DONE]")) + wire.END
    request = wire.play(wire.HEAD, *script, *tail).request
    assert (request.token_ids, request.first_tokens, request.admissible) == ((1, 2, 3), None, True)
    assert request.counters == {DRAFTS: 43, DRAFTED: 215, ACCEPTED: 63} and request.prompt_sha256


def test_what_says_nothing_says_nothing() -> None:
    for value in ({}, {"metrics": None}, {"metrics": {"speculative_decoding": None}}, {"sglext": {}}, {"sglext": 4}):
        assert speculation(value) is None
    assert Speculation(1, 2, None).counters == {DRAFTS: 1, DRAFTED: 2}


def test_fields_of_the_body_are_laid_over_ours() -> None:
    fields = (("return_spec_tokens_details", "true"), ("return_token_ids", "null"))
    fixture = Fixture("f", '{"prompt": "x"}', (0,), chat=False)
    _, body = open_adapter("command").body(Ask(fixture, 1, 8, Sampling(), "m", fields))
    asked = json.loads(body)
    assert asked["return_spec_tokens_details"] is True and "return_token_ids" not in asked and asked["seed"] == 1

"""Whatever a server says is right, absent, or a malformed stream that names the field: never an exception of ours."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns.exactness.compare import compare
from campaigns.plan import PairKey, Phase, Role
from campaigns.reasons import Reason
from campaigns.records import Request, Stamp
from orchestrator.measuring.exchange import Event, Exchange
from orchestrator.measuring.observe import Context, observe
from orchestrator.measuring.stream import read
from results.store.hashing import row_sha256
from results.store.rounds import flatten, summarise, to_matrix
from results.store.rows import encode, pack_ids

ROUND = {"kind": "spec", "rows": 8, "drafted": 7, "accepted": 1, "emitted": 2} | {
    f"{name}_ns": 10 for name in ("draft", "verify", "sample", "commit", "total")
}
CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ANSWER: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [5, 6]},
    {"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [1]}]},
    {"choices": [{"index": 0, "delta": {"reasoning": "b", "tool_calls": [CALL]}, "token_ids": [2, 3]}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {
        "choices": [],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}},
        "metrics": {"queue_ns": 1, "prefill_ns": 2, "decode_ns": 3, "num_q1_steps": 0, "rounds": [ROUND]},
    },
]
PLACES = ["choices", "delta", "content", "reasoning", "tool_calls", "token_ids", "usage", "metrics"]


def observed(answer: list[Any]) -> Request:
    """As the client makes it of these events, and everything that is later done with it."""
    events = tuple(Event(100 * i, json.dumps(value), wake_ns=5) for i, value in enumerate(answer, 1))
    exchange = Exchange(1, 2, 10_000, 200, (*events, Event(9000, "[DONE] ")), None, "", Stamp.KERNEL)
    key = PairKey(0, "f", 1, 0)
    context = Context("c0ffee", 0, 1, key, 1, Role.CONTROL, "default", Phase.MEASURE, 1, 0, 64)
    request = observe(exchange, read(exchange.events), context)
    summarise(to_matrix(flatten(request.rounds)))
    pack_ids(request.token_ids)
    row = encode(request, without=frozenset({"rounds", "token_ids"}))
    row_sha256(row)
    assert all(not isinstance(value, int) or abs(value) < 2**63 for value in row.values())
    compare(request, request, 4)
    return request


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, name))


def put(path: tuple[Any, ...], value: Any) -> list[Any]:
    answer = copy.deepcopy(ANSWER)
    owner: Any = answer
    for step in path[:-1]:
        owner = owner[step]
    owner[path[-1]] = value
    return answer


def test_the_answer_that_is_spoilt_below_is_right() -> None:
    request = observed(ANSWER)
    assert (request.admissible, request.reasons, request.error) == (True, (), "")
    assert (request.completion_tokens, request.n_rounds, request.token_ids) == (3, 1, (1, 2, 3))
    assert json.loads(request.tool_calls_json) == [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]


DELTA = (2, "choices", 0, "delta")
CASES = [
    ((*DELTA, "tool_calls", 0, "function", "arguments"), {"a": 1}, "arguments"),
    ((*DELTA, "tool_calls", 0, "function", "name"), 5, "name"),
    ((*DELTA, "tool_calls", 0, "index"), "0", "index"),
    ((2, "choices"), [None], "choices[0] is null"),
    ((2, "choices"), {"0": {}}, "choices"),
    ((2, "choices", 0, "delta"), "text", "delta"),
    ((2, "choices", 0, "finish_reason"), ["stop"], "finish_reason"),
    *(((2, "choices", 0, "token_ids"), [2, bad], "token_ids[1]") for bad in ("3", 3.0, None, -1, 2**32, 2**70, True)),
    ((0, "prompt_token_ids"), [5, 2**70], "prompt_token_ids[1]"),
    *(((4, "usage", "completion_tokens"), bad, "completion_tokens") for bad in ("3", 3.5, 2**65, -3, [3], True)),
    ((4, "usage", "prompt_tokens_details"), "0", "prompt_tokens_details"),
    ((4, "usage", "prompt_tokens_details", "cached_tokens"), "0", "cached_tokens"),
    ((4, "usage"), "none", "usage"),
    *(((4, "metrics", "decode_ns"), bad, "decode_ns") for bad in (-5_000_000, 1e9, "1", 2**60)),
    ((4, "metrics", "rounds"), {"0": ROUND}, "rounds"),
    ((4, "metrics", "rounds", 0), None, "rounds[0] is null"),
    ((4, "metrics", "rounds", 0, "kind"), "wide", "kind"),
    ((4, "metrics", "rounds", 0, "total_ns"), -1, "total_ns"),
    ((4, "metrics", "rounds", 0, "accepted"), 2**40, "accepted"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "field"), CASES)
def test_a_field_of_another_type_is_a_malformed_stream(path: tuple[Any, ...], value: Any, field: str) -> None:
    request = observed(put(path, value))
    assert (request.admissible, request.reasons) == (False, (Reason.MALFORMED_STREAM,))
    assert field in request.error


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1" * 5000, "[" * 100_000])
def test_what_json_does_not_know(constant: str) -> None:
    bad = Event(300, f'{{"usage": {{"completion_tokens": {constant}}}}}')
    reply = read((Event(100, json.dumps(ANSWER[1])), bad))
    assert reply.failure is Reason.MALFORMED_STREAM and len(reply.chunks) == 1


@pytest.mark.parametrize("path", [path for path in leaves(ANSWER) if len(path) > 1 and isinstance(path[-1], str)])
def test_null_is_absent(path: tuple[Any, ...]) -> None:
    assert Reason.MALFORMED_STREAM not in observed(put(path, None)).reasons


strange = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(PLACES), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([path for path in leaves(ANSWER) if path]), strange)
def test_no_value_anywhere_is_a_bug_of_ours(path: tuple[Any, ...], value: Any) -> None:
    if isinstance(value, float) and math.isinf(value):
        return
    request = observed(put(path, value))
    assert request.admissible or request.reasons
    assert all(type(i) is int and 0 <= i < 2**32 for i in request.token_ids or ())


# -- server-sent events ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise", [Event(50, ""), Event(50, "  "), Event(50, "still here", "ping"), Event(50, "1", "id")]
)
def test_events_that_say_nothing_are_no_chunks(noise: Event) -> None:
    events = [Event(100 * i, json.dumps(value)) for i, value in enumerate(ANSWER, 1)]
    reply = read((noise, events[0], noise, *events[1:], noise, Event(900, "[DONE]")))
    assert (reply.failure, reply.text, len(reply.chunks), reply.first_event_ns) == (None, "a", 2, 100)


@pytest.mark.parametrize("done", ["[DONE]", "[DONE] ", " [DONE]", "[DONE]\t"])
def test_done_with_blanks_is_done(done: str) -> None:
    late = Event(999, json.dumps(ANSWER[1]))
    assert len(read((Event(100, json.dumps(ANSWER[1])), Event(200, done), late)).chunks) == 1


def test_text_without_a_name_is_still_malformed() -> None:
    assert read((Event(100, "hello"),)).failure is Reason.MALFORMED_STREAM


# -- tool calls that share an index -----------------------------------------------------------------------------------


def calls(*deltas: dict[str, Any]) -> list[Any]:
    events = [Event(i, json.dumps({"choices": [{"delta": {"tool_calls": [d]}}]})) for i, d in enumerate(deltas, 1)]
    made = json.loads(read((*events, Event(99, "[DONE]"))).tool_calls_json)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in made]


def delta(name: str = "", arguments: str = "", **fields: Any) -> dict[str, Any]:
    return {"index": 0, "function": {"name": name or None, "arguments": arguments}, **fields}


def test_calls_of_one_index_with_other_ids_or_names_are_separate() -> None:
    both = [("f", '{"a":1}'), ("f", '{"a":2}')]
    assert calls(delta("f", '{"a":1}', id="x"), delta("f", '{"a":2}', id="y")) == both
    assert calls(delta("f", '{"a":', id="x"), delta("", "1}"), delta("f", '{"a":2}', id="y")) == both
    assert calls(delta("f", "{}"), delta("g", "{}")) == [("f", "{}"), ("g", "{}")]


def test_a_call_whose_id_and_name_are_repeated_is_one() -> None:
    assert calls(delta("f", '{"a"', id="x"), delta("f", ":1}", id="x")) == [("f", '{"a":1}')]
    assert calls(delta("f", '{"a"'), delta("f", ":1}")) == [("f", '{"a":1}')]

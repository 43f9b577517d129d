"""What can come over the wire, case by case: each ends in a result or in one typed reason. Cases 1-6, 13, 22, 23."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from campaigns import quantities
from campaigns.exactness.compare import compare
from campaigns.hashes import token_sha256
from campaigns.plan import Role
from campaigns.reasons import FAILED, Reason
from campaigns.records import Exactness, OperatorTime, Profile, Request
from campaigns.routes import DECODE_STEPS
from orchestrator.measuring.observe import observe
from orchestrator.output.journal import Journal

A, B, C = (11,), (12, 13), (14, 15, 16)


def three(wire: Any) -> list[dict[str, Any]]:
    """Prefill token, two rounds of two and three tokens, usage."""
    return [wire.text("a", A), wire.text("bc", B), wire.text("def", C, "stop"), wire.usage(6)]


def assert_is_result(request: Request) -> None:
    assert (request.admissible, request.reasons, request.error) == (True, (), "")
    assert request.text == "abcdef"
    assert request.token_ids == A + B + C
    assert request.token_sha256 == token_sha256(A + B + C)
    assert [row.client_tokens for row in request.rounds] == [2, 3]
    assert (request.n_rounds, request.first_tokens, request.completion_tokens) == (2, 1, 6)


def apart(wire: Any, first: bytes, *rest: bytes) -> list[bytes | float]:
    """The first event in a recv of its own: an answer that comes all at once has no rounds."""
    return [first, wire.PAUSE_S, *rest]


def assert_fails(request: Request, reason: Reason, words: str) -> None:
    assert (request.admissible, request.reasons) == (False, (reason,))
    assert words in request.error


# -- framing of events ---------------------------------------------------------------------------------------------


def test_one_event_per_recv(wire: Any) -> None:
    measured = wire.play(*wire.stream(*three(wire)))
    assert_is_result(measured.request)
    assert not any(row.coalesced for row in measured.request.rounds)
    assert measured.request.finish_reason == "stop"
    assert measured.request.prompt_tokens == 3


def test_several_events_in_one_recv_are_marked(wire: Any) -> None:
    first, *rest = [wire.event(value) for value in [*three(wire), "[DONE]"]]
    script = (wire.chunk(first), wire.PAUSE_S, wire.chunk(b"".join(rest)) + wire.END)
    request = wire.play(wire.HEAD, wire.PAUSE_S, *script).request
    assert_is_result(request)
    assert [row.coalesced for row in request.rounds] == [True, True]
    assert [row.client_ns > 0 for row in request.rounds] == [True, False]


def test_answer_in_a_single_recv_has_no_times_of_the_client(wire: Any) -> None:
    events = b"".join(wire.event(value) for value in [*three(wire), "[DONE]"])
    request = wire.play(wire.HEAD, wire.PAUSE_S, wire.chunk(events) + wire.END).request
    assert not request.admissible
    assert request.reasons == (Reason.FIRST_CHUNK_COALESCED, Reason.CLIENT_ROUNDS_UNUSABLE)
    assert "the first 3 content chunks arrived as one" in request.error
    assert (request.text, request.n_rounds) == ("abcdef", None)


def first_four_in_one_write(wire: Any, *rest: Any) -> list[bytes | float]:
    """A server, or a proxy before it, that holds its first events back and lets them go together."""
    held = b"".join(wire.chunk(wire.event(wire.text("x", [i]))) for i in range(4))
    events = [wire.chunk(wire.event(value)) for value in (*rest, "[DONE]")]
    return [wire.HEAD, wire.PAUSE_S, held, *(part for e in events for part in (wire.PAUSE_S, e)), wire.END]


def test_first_chunk_that_came_with_later_ones_was_held_back_somewhere(wire: Any) -> None:
    rest = [wire.text("y", [4]), wire.text("z", [5], "stop"), wire.usage(6)]
    request = wire.play(*first_four_in_one_write(wire, *rest)).request
    assert_fails(request, Reason.FIRST_CHUNK_COALESCED, "the first 4 content chunks arrived as one")
    assert (quantities.ttft_ms(request), quantities.client_decode_ns(request)) == (None, None)
    assert [row.coalesced for row in request.rounds] == [True, True, True, False, False]


def test_engine_with_a_clock_of_its_own_is_measured_all_the_same(wire: Any) -> None:
    rounds = [engine_round(1) for _ in range(5)]
    rest = [wire.text("y", [4]), wire.text("z", [5], "stop"), wire.usage(6, **metrics(*rounds))]
    request = wire.play(*first_four_in_one_write(wire, *rest)).request
    assert (request.admissible, request.reasons) == (True, (Reason.FIRST_CHUNK_COALESCED,))
    assert (quantities.ttft_ms(request), quantities.decode_tokens_per_s(request, engine=True)) == (
        None,
        pytest.approx(5 / 3e-9),
    )


def test_usage_in_the_recv_of_the_last_content_does_not_mark_it(wire: Any) -> None:
    first, second, third, usage = three(wire)
    last = wire.event(third) + wire.event(usage) + wire.event("[DONE]")
    request = wire.play(
        wire.HEAD, *(wire.chunk(wire.event(v)) if v else wire.PAUSE_S for v in (first, None, second, None)),
        wire.chunk(last) + wire.END,
    ).request  # fmt: skip
    assert_is_result(request)
    assert [row.coalesced for row in request.rounds] == [False, False]


def test_event_over_many_recvs_has_the_stamp_of_the_last(wire: Any) -> None:
    first, *rest = [wire.event(value) for value in [*three(wire), "[DONE]"]]
    cut = [first[i : i + 9] for i in range(0, len(first), 9)]
    script = [part for piece in cut for part in (wire.chunk(piece), wire.PAUSE_S)]
    exchange, _, request = vars(wire.play(wire.HEAD, *script, wire.chunk(b"".join(rest)), wire.END)).values()
    assert_is_result(request)
    assert request.first_content_ns - request.send_ns > (len(cut) - 1) * wire.PAUSE_S * 0.9e9
    assert exchange.events[0].at_ns < exchange.events[1].at_ns


def test_any_cut_of_the_bytes_gives_the_same_reply(wire: Any) -> None:
    whole = b"".join(wire.chunk(wire.event(value)) for value in [*three(wire), "[DONE]"]) + wire.END
    for size in (1, 2, 3, 7):
        parts = [part for i in range(0, len(whole), size) for part in (whole[i : i + size], 0.0002)]
        request = wire.play(wire.HEAD, *parts).request
        assert (request.text, request.token_ids, request.completion_tokens) == ("abcdef", A + B + C, 6)
        assert [row.client_tokens for row in request.rounds] == [2, 3]


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\r\r", b"\n\n"], ids=["CRLF", "CR", "LF"])
@pytest.mark.parametrize("prefix", [b"data: ", b"data:"], ids=["space", "no space"])
def test_line_ends_and_spaces(wire: Any, end: bytes, prefix: bytes) -> None:
    events = [wire.chunk(wire.event(value, end, prefix)) for value in [*three(wire), "[DONE]"]]
    assert_is_result(wire.play(wire.HEAD, *apart(wire, *events), wire.END).request)


def test_crlf_cut_between_its_two_bytes(wire: Any) -> None:
    events = b"".join(wire.event(value, b"\r\n\r\n") for value in [*three(wire), "[DONE]"])
    parts = [part + b"\r" for part in events.split(b"\r")[:-1]] + [events.split(b"\r")[-1]]
    script = [action for part in parts for action in (wire.chunk(part), wire.PAUSE_S)]
    assert_is_result(wire.play(wire.HEAD, *script, wire.END).request)


def test_line_ends_that_do_not_match_and_come_one_by_one(wire: Any) -> None:
    events = [part for value in [*three(wire), "[DONE]"] for part in (wire.event(value)[:-2] + b"\r", b"\n", b"\n")]
    assert_is_result(
        wire.play(
            *apart(wire, wire.HEAD, *(x for e in events for x in (wire.chunk(e), wire.PAUSE_S)), wire.END)
        ).request
    )


def test_data_that_looks_like_the_end_of_the_message(wire: Any) -> None:
    """`0 CRLF CRLF` inside an event is content, even when a recv ends there."""
    zero = wire.chunk(b"data: 0\r\n\r\n")
    cut = zero.index(b"0\r\n\r\n") + 5
    first, *rest = [wire.chunk(wire.event(value)) for value in [*three(wire), "[DONE]"]]
    exchange = wire.play(wire.HEAD, first, zero[:cut], wire.PAUSE_S, zero[cut:], *rest, wire.END).exchange
    assert [event.data for event in exchange.events][1] == "0"
    assert exchange.events[-1].data == "[DONE]"


def test_comments_pings_and_foreign_fields_are_no_events(wire: Any) -> None:
    noise = b": ping\n\n:\n\nid: 4\n\nretry: 100\n\nevent: message\nid: 5\n"
    events = [wire.chunk(noise + wire.event(value)) for value in [*three(wire), "[DONE]"]]
    waiting = wire.chunk(b": waiting\n\n")
    measured = wire.play(wire.HEAD, waiting, wire.PAUSE_S, *apart(wire, *events), wire.END)
    assert_is_result(measured.request)
    assert measured.exchange.events[0].at_ns == measured.request.first_event_ns == measured.request.first_content_ns


def test_data_over_several_lines_is_joined(wire: Any) -> None:
    first, *rest = three(wire)
    lines = json.dumps(first, indent=1).splitlines()
    event = b"".join(b"data: " + line.encode() + b"\n" for line in lines) + b"\n"
    assert_is_result(wire.play(wire.HEAD, wire.chunk(event), *wire.stream(*rest)[1:]).request)


def test_byte_order_mark(wire: Any) -> None:
    first, *rest = three(wire)
    assert_is_result(
        wire.play(wire.HEAD, wire.chunk(b"\xef\xbb\xbf" + wire.event(first)), *wire.stream(*rest)[1:]).request
    )


def test_multi_byte_text_cut_inside_a_character(wire: Any) -> None:
    text = "Größe 😀 漢"
    whole = wire.event(wire.text(text, A, "stop"))
    at = whole.index("😀".encode()) + 2
    rest = [wire.chunk(wire.event(value)) for value in (wire.usage(1), "[DONE]")]
    request = wire.play(
        wire.HEAD, wire.chunk(whole[:at]), wire.PAUSE_S, wire.chunk(whole[at:]), *rest, wire.END
    ).request
    assert (request.text, request.admissible) == (text, True)


def test_surrogate_halves_in_two_chunks_become_one_character(wire: Any) -> None:
    halves = [r'{"choices":[{"index":0,"text":"\ud83d","token_ids":[1]}]}', r'{"choices":[{"index":0,"text":"\ude00",'
              r'"token_ids":[2],"finish_reason":"stop"}]}']  # fmt: skip
    request = wire.play(*wire.stream(*halves, wire.usage(2))).request
    assert request.text == "😀"
    request.text.encode()


def test_bytes_that_are_not_utf8(wire: Any) -> None:
    bad = wire.chunk(b'data: {"choices":[{"index":0,"text":"\xff"}]}\n\n')
    request = wire.play(wire.HEAD, wire.chunk(wire.event(three(wire)[0])), bad, wire.END).request
    assert_fails(request, Reason.MALFORMED_STREAM, "UTF-8")
    assert request.text == "a"


@pytest.mark.parametrize("event", ["{", "[1]", '{"choices":[{"delta":"x"}]}', '{"choices":[{"text":5}]}'])
def test_events_of_another_shape(wire: Any, event: str) -> None:
    request = wire.play(*wire.stream(three(wire)[0], event)).request
    assert request.reasons == (Reason.MALFORMED_STREAM,)
    assert not request.admissible


# -- ends --------------------------------------------------------------------------------------------------------------


def test_missing_done_after_a_finished_answer_is_a_result(wire: Any) -> None:
    assert_is_result(wire.play(*wire.stream(*three(wire), done=False)).request)


def test_connection_lost_after_done_is_a_result(wire: Any) -> None:
    script = wire.stream(*three(wire))[:-1]
    assert_is_result(wire.play(*script, wire.chunk(wire.event("[DONE]")), wire.CLOSE).request)


def test_until_close_framing(wire: Any) -> None:
    events = [wire.event(value) for value in [*three(wire), "[DONE]"]]
    assert_is_result(wire.play(wire.HEAD_UNTIL_CLOSE, *apart(wire, *events), wire.CLOSE).request)


def test_last_event_without_its_blank_line(wire: Any) -> None:
    events = [wire.event(value) for value in three(wire)]
    events[-1] = events[-1].rstrip(b"\n")
    assert_is_result(wire.play(wire.HEAD_UNTIL_CLOSE, *apart(wire, *events), wire.CLOSE).request)


def test_missing_done_and_finish_reason(wire: Any) -> None:
    request = wire.play(*wire.stream(wire.text("a", A), wire.usage(1), done=False)).request
    assert_fails(request, Reason.MALFORMED_STREAM, "neither a finish_reason nor [DONE]")


def test_missing_usage(wire: Any) -> None:
    request = wire.play(*wire.stream(*three(wire)[:-1])).request
    assert_fails(request, Reason.USAGE_MISSING, "include_usage")
    assert request.completion_tokens is None
    assert request.text == "abcdef"


def test_usage_that_came_before_the_last_content_counts_a_part(wire: Any) -> None:
    first, *rest = three(wire)[:-1]
    request = wire.play(*wire.stream(first | {"usage": wire.usage(1)["usage"]}, *rest)).request
    assert_fails(request, Reason.USAGE_MISSING, "behind its last content")
    growing = [chunk | {"usage": wire.usage(n)["usage"]} for chunk, n in zip(three(wire)[:-1], (1, 3, 6), strict=True)]
    assert_is_result(wire.play(*wire.stream(*growing)).request)  # vLLM's continuous_usage_stats


def test_usage_of_no_tokens_beside_content_is_no_count(wire: Any) -> None:
    request = wire.play(*wire.stream(wire.text("a"), wire.text("b", finish="stop"), wire.usage(0))).request
    assert not request.admissible and Reason.TOKEN_COUNT_MISMATCH in request.reasons
    assert "completion_tokens is 0, and 2 content chunks came" in request.error


def test_a_second_answer_beside_the_first_is_refused(wire: Any) -> None:
    """Its chunks would be rounds, and its tokens speed."""
    first, *rest = three(wire)
    second = wire.text("a", A)
    second["choices"][0]["index"] = 1
    assert_fails(wire.play(*wire.stream(first, second, *rest)).request, Reason.MALFORMED_STREAM, "index is 1")


def test_disconnect_keeps_what_came(wire: Any) -> None:
    server = wire.serve([*wire.stream(*three(wire))[:5], wire.CLOSE], wire.stream(*three(wire)))
    broken = wire.ask(server).request
    assert_fails(broken, Reason.DISCONNECT, "after 2 events")
    assert (broken.text, broken.n_rounds) == ("abc", 1)
    assert_is_result(wire.ask(server).request)


def test_reset_is_a_disconnect(wire: Any) -> None:
    request = wire.play(*wire.stream(*three(wire))[:3], wire.PAUSE_S, wire.RESET).request
    assert_fails(request, Reason.DISCONNECT, "after 1 events")


def test_server_that_dies_in_mid_request(wire: Any) -> None:
    request = wire.play(*wire.stream(*three(wire))[:5], wire.DIE).request
    assert_fails(request, Reason.SERVER_DIED, "accepts no other")
    assert request.text == "abc"


def test_no_server_at_all(wire: Any) -> None:
    server = wire.serve([])
    server.stop()
    request = wire.ask(server).request
    assert_fails(request, Reason.SERVER_DIED, "no connection")
    assert (request.first_content_ns, request.http_status) == (None, None)


def test_stall(wire: Any) -> None:
    request = wire.play(*wire.stream(*three(wire))[:3], 30.0, timeout_s=2.0).request
    assert_fails(request, Reason.STALL, "silent for 2.0 s after 1 events")


def test_pings_do_not_hide_a_stall(wire: Any) -> None:
    pings = [action for _ in range(40) for action in (wire.chunk(b": ping\n\n"), 0.1)]
    request = wire.play(*wire.stream(*three(wire))[:3], *pings, timeout_s=2.0).request
    assert_fails(request, Reason.STALL, "pings")


def test_slow_stream_is_no_stall(wire: Any) -> None:
    script = [action if not isinstance(action, float) else 0.4 for action in wire.stream(*three(wire))]
    assert_is_result(wire.play(*script, timeout_s=1.5).request)


# -- refusals ------------------------------------------------------------------------------------------------------


def answer(status: str, body: bytes, *headers: str) -> bytes:
    fields = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(fields).encode() + body


def test_http_error_with_its_message(wire: Any) -> None:
    server = wire.serve([answer("400 Bad Request", b'{"error": {"message": "top_k is too large", "code": null}}')])
    request = wire.ask(server).request
    assert_fails(request, Reason.HTTP_ERROR, "HTTP 400: top_k is too large")
    assert request.http_status == 400


def test_http_error_that_is_not_json(wire: Any) -> None:
    assert_fails(wire.play(answer("502 Bad Gateway", b"<html>")).request, Reason.HTTP_ERROR, "HTTP 502: <html>")


def test_error_before_the_body_was_read(wire: Any) -> None:
    """The server refuses by the head alone, then drains the upload: the answer is what counts."""
    refusal = answer("413 Content Too Large", b'{"error": {"message": "too long"}}', "Connection: close")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with listener.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(refusal)
                while connection.recv(1 << 20):
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        server = SimpleNamespace(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert_fails(wire.ask(server, body=b"x" * 30_000_000).request, Reason.HTTP_ERROR, "HTTP 413: too long")
        thread.join()


def test_redirect_is_not_followed(wire: Any) -> None:
    elsewhere = wire.serve(wire.stream(*three(wire)))
    server = wire.serve([answer("307 Temporary Redirect", b"", f"Location: {elsewhere.url}/v1/completions")])
    assert_fails(wire.ask(server).request, Reason.REDIRECT, elsewhere.url)
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    "value",
    [
        {"error": {"message": "out of memory", "code": 500}},
        {"object": "error", "message": "out of memory"},
        {"error": {"message": "", "type": "out of memory"}},
        {"object": "error", "message": "", "type": "out of memory"},
    ],
    ids=["OpenAI", "old vLLM", "no words", "old, no words"],
)
def test_error_event_in_the_stream(wire: Any, value: dict[str, Any]) -> None:
    """Usage that came before it (`continuous_usage_stats`) makes the beginning of an answer no answer."""
    request = wire.play(*wire.stream(three(wire)[0] | {"usage": wire.usage(1)["usage"]}, value)).request
    assert_fails(request, Reason.ERROR_EVENT, "out of memory")
    assert request.text == "a"


def test_half_a_character_in_an_error_can_be_kept(wire: Any, tmp_path: Path) -> None:
    """A server that cuts its words inside a character: files and databases take UTF-8 alone."""
    request = wire.play(*wire.stream(three(wire)[0], json.dumps({"error": {"message": "bad \ud83d"}}))).request
    assert_fails(request, Reason.ERROR_EVENT, "bad \ufffd")
    refused = wire.play(answer("400 Bad Request", rb'{"error": {"message": "bad \ud83d"}}')).request
    assert_fails(refused, Reason.HTTP_ERROR, "bad \ufffd")
    with Journal(tmp_path) as journal:
        journal.write("failure", message="bad \ud83d")
    assert "bad \\ud83d" in journal.path.read_text()


@pytest.mark.parametrize("pieces", [["\ud83d\ude00"], ["\ud83d", "\ude00"]], ids=["whole", "halves"])
def test_character_of_a_tool_call_in_two_chunks_is_one(wire: Any, pieces: list[str]) -> None:
    calls = [json.dumps(wire.delta(A, tool_calls=[tool(0, piece)])) for piece in pieces]
    assert wire.play(*wire.stream(*calls, wire.usage(1))).request.tool_calls_json.count("\U0001f600") == 1


def test_error_event_before_the_server_goes(wire: Any) -> None:
    script = wire.stream(three(wire)[0], {"error": {"message": "engine died"}})[:-2]
    assert_fails(wire.play(*script, wire.DIE).request, Reason.ERROR_EVENT, "engine died")


def test_error_as_a_finish_reason(wire: Any) -> None:
    request = wire.play(*wire.stream(wire.text("a", A, "abort"), wire.usage(1))).request
    assert_fails(request, Reason.ERROR_EVENT, "abort")


def test_error_as_a_plain_answer(wire: Any) -> None:
    request = wire.play(answer("200 OK", b'{"error": {"message": "busy"}}')).request
    assert_fails(request, Reason.ERROR_EVENT, "busy")


def test_server_that_does_not_stream(wire: Any) -> None:
    request = wire.play(answer("200 OK", b'{"choices": [{"text": "abc"}]}', "Content-Type: application/json")).request
    assert_fails(request, Reason.MALFORMED_STREAM, "did not stream its answer: content type application/json")


def test_stream_in_another_encoding_is_told_by_its_name(wire: Any) -> None:
    reply = answer("200 OK", b"\x1f\x8b\x08", "Content-Type: text/event-stream", "Content-Encoding: gzip")
    assert_fails(wire.play(reply).request, Reason.MALFORMED_STREAM, "encoded as gzip")


@pytest.mark.parametrize(
    "reply",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        bytes.fromhex("000012040000000000") + bytes(18) + bytes.fromhex("0000080700000000000000000000000001"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["text", "size", "http2", "transfer coding"],
)
def test_answer_that_is_not_http(wire: Any, reply: bytes) -> None:
    """Told by what it is, not by how its connection ended."""
    assert_fails(wire.play(reply, wire.CLOSE).request, Reason.MALFORMED_STREAM, "not HTTP/1.1")


def test_informational_answer_is_skipped(wire: Any) -> None:
    script = wire.stream(*three(wire))
    script[0] = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + script[0]
    assert_is_result(wire.play(*script).request)


# -- channels ----------------------------------------------------------------------------------------------------------


def test_role_only_and_empty_deltas_are_events_and_not_content(wire: Any) -> None:
    chunks = [wire.delta(role="assistant", content=""), wire.delta(), wire.delta(A, content="a")]
    chunks += [wire.delta([], content=""), wire.delta(B, "stop", content="bc"), wire.usage(3)]
    request = wire.play(*wire.stream(*chunks)).request
    assert request.admissible
    assert request.first_event_ns < request.first_content_ns
    assert (request.n_rounds, request.text) == (1, "abc")


def test_empty_answer_has_no_ttft(wire: Any) -> None:
    """Case 5."""
    request = wire.play(*wire.stream(wire.delta(role="assistant"), wire.delta(finish="stop"), wire.usage(0))).request
    assert not request.admissible
    assert Reason.EMPTY_ANSWER in request.reasons
    assert quantities.ttft_ms(request) is None
    assert request.n_rounds is None


def test_stream_without_content_or_an_end_of_its_own_is_no_answer(wire: Any) -> None:
    request = wire.play(*wire.stream(wire.delta(role="assistant"), wire.usage(0))).request
    assert_fails(request, Reason.NO_CONTENT, "neither content")


@pytest.mark.parametrize(("answer", "level"), [("abc", Exactness.NOT_COMPARED), ("", Exactness.STRUCTURE)])
def test_arm_that_ends_at_once_answers_otherwise_and_did_not_fail(wire: Any, answer: str, level: Exactness) -> None:
    ends_at_once = wire.play(*wire.stream(wire.delta(finish="stop"), wire.usage(1))).request
    chunks = [wire.delta(content=answer), wire.delta(finish="stop"), wire.usage(1 + len(answer))]
    other = replace(wire.play(*wire.stream(*chunks)).request, role=Role.CANDIDATE)
    pair = compare(ends_at_once, other, 4)
    assert pair.exactness is level
    assert not pair.admissible and not FAILED & {*pair.reasons}
    assert (Reason.BELOW_REQUIRED_EXACTNESS in pair.reasons) == (level < Exactness.STRUCTURE)


@pytest.mark.parametrize("channel", ["reasoning", "reasoning_content"])
def test_reasoning_is_content(wire: Any, channel: str) -> None:
    chunks = [
        wire.delta(A, **{channel: "think"}),
        wire.delta(B, **{channel: " more"}),
        wire.delta(C, "stop", content="!"),
    ]
    request = wire.play(*wire.stream(*chunks, wire.usage(6))).request
    assert request.admissible
    assert (request.reasoning_text, request.text) == ("think more", "!")
    assert (request.n_rounds, request.first_tokens) == (2, 1)


def test_reasoning_only_answer_has_a_ttft(wire: Any) -> None:
    """Case 6."""
    request = wire.play(*wire.stream(wire.delta(A, "length", reasoning="think"), wire.usage(1))).request
    assert request.admissible
    assert quantities.ttft_ms(request) is not None
    assert request.reasons == (Reason.CAPPED,)


def tool(index: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return {"index": index, "function": function} | (
        {"id": f"call-{os.urandom(4).hex()}", "type": "function"} if name else {}
    )


def parallel_calls(wire: Any) -> list[dict[str, Any]]:
    return [
        wire.delta(A, tool_calls=[tool(0, "", "zeta")]),
        wire.delta(B, tool_calls=[tool(0, '{"b": 1')]),
        wire.delta(C, tool_calls=[tool(0, ', "a": 2}'), tool(1, "{}", "alpha")]),
        wire.delta([], "tool_calls"),
        wire.usage(6),
    ]


def test_tool_calls_are_put_together_in_their_order(wire: Any) -> None:
    request = wire.play(*wire.stream(*parallel_calls(wire))).request
    assert request.admissible
    assert request.finish_reason == "tool_calls"
    assert [call["function"] for call in json.loads(request.tool_calls_json)] == [
        {"name": "zeta", "arguments": '{"b": 1, "a": 2}'},
        {"name": "alpha", "arguments": "{}"},
    ]


def test_tool_calls_compare_equal_between_arms(wire: Any) -> None:
    """Call ids are random: two equal answers must give equal text."""
    one, other = (wire.play(*wire.stream(*parallel_calls(wire))).request for _ in range(2))
    assert one.tool_calls_json == other.tool_calls_json


def test_ids_without_text_yet_are_content(wire: Any) -> None:
    """A character that needs a second token: the round happened, its text is withheld."""
    chunks = [wire.text("", A), wire.text("é", B, "stop"), wire.usage(3)]
    request = wire.play(*wire.stream(*chunks)).request
    assert (request.n_rounds, request.first_tokens, request.text) == (1, 1, "é")


# -- identities --------------------------------------------------------------------------------------------------------


def test_ids_that_disagree_with_usage(wire: Any) -> None:
    """Case 4: a mismatch is a typed reason, not a missing value."""
    request = wire.play(*wire.stream(*three(wire)[:-1], wire.usage(7))).request
    assert not request.admissible
    assert request.reasons == (Reason.TOKEN_COUNT_MISMATCH, Reason.HASH_INCOMPLETE)
    assert "6 token ids but usage.completion_tokens 7" in request.error
    assert request.token_sha256 is None
    assert request.token_ids == A + B + C


def test_ids_missing_in_tool_calls_are_not_equality(wire: Any) -> None:
    """Case 22."""
    chunks = [
        wire.delta(A, content="a"),
        wire.delta(tool_calls=[tool(0, "{}", "f")], finish="tool_calls"),
        wire.usage(4),
    ]
    request = wire.play(*wire.stream(*chunks)).request
    assert Reason.HASH_INCOMPLETE in request.reasons
    assert request.token_sha256 is None


@pytest.mark.parametrize("ids", ["absent", "null"])
def test_server_without_ids_is_measured_and_flagged(wire: Any, ids: str) -> None:
    """Case 23."""
    chunks = [wire.text("a"), wire.text("b"), wire.text("c", finish="stop"), wire.usage(3, cached=None)]
    if ids == "null":
        for chunk in chunks[:-1]:
            chunk["choices"][0]["token_ids"] = None
    request = wire.play(*wire.stream(*chunks)).request
    assert request.admissible
    assert request.reasons == (Reason.IDS_UNAVAILABLE, Reason.HASH_INCOMPLETE)
    assert (request.token_ids, request.token_sha256, request.first_tokens) == (None, None, None)
    assert (request.cached_tokens, request.n_rounds) == (None, 2)
    assert [row.client_tokens for row in request.rounds] == [None, None]


def test_cached_prompt_tokens_exclude_the_request(wire: Any) -> None:
    """Cases 13 and 14."""
    request = wire.play(*wire.stream(*three(wire)[:-1], wire.usage(6, cached=2))).request
    assert_fails(request, Reason.CACHE_HIT, "2 prompt tokens")


def test_prompt_ids_of_completions_and_chat(wire: Any) -> None:
    first = wire.text("a", A, "stop", prompt_token_ids=[5, 6, 7])
    assert wire.play(*wire.stream(first, wire.usage(1))).request.prompt_sha256 == token_sha256((5, 6, 7))
    role = wire.delta(role="assistant") | {"prompt_token_ids": [5, 6, 7]}
    request = wire.play(*wire.stream(role, wire.delta(A, "stop", content="a"), wire.usage(1))).request
    assert request.prompt_sha256 == token_sha256((5, 6, 7))


@pytest.mark.parametrize("width", range(1, 9))
def test_rounds_are_chunks_whatever_they_hold(wire: Any, width: int) -> None:
    """Case 1."""
    rounds = [wire.text("x", range(width)) for _ in range(5)]
    rounds[-1]["choices"][0]["finish_reason"] = "stop"
    request = wire.play(*wire.stream(wire.text("x", [9]), *rounds, wire.usage(1 + 5 * width))).request
    assert request.n_rounds == 5
    assert [row.client_tokens for row in request.rounds] == [width] * 5
    assert sum(row.client_ns for row in request.rounds) == quantities.client_decode_ns(request)


def test_bundled_first_chunk_does_not_inflate_the_rate(wire: Any) -> None:
    """Case 4."""
    chunks = [wire.text("x", range(4)), wire.text("x", [4]), wire.text("x", [5], "stop"), wire.usage(6)]
    request = wire.play(*wire.stream(*chunks)).request
    rate = quantities.decode_tokens_per_s(request, engine=False)
    assert rate == pytest.approx(2 / (quantities.client_decode_ns(request) * 1e-9))


def test_more_chunks_than_tokens_are_not_rounds(wire: Any) -> None:
    """Case 1: a stream of characters."""
    chunks = [wire.text(c) for c in "abcdef"] + [wire.text("g", finish="stop"), wire.usage(3)]
    request = wire.play(*wire.stream(*chunks)).request
    assert Reason.CLIENT_ROUNDS_UNUSABLE in request.reasons
    assert request.n_rounds is None


# -- the engine's own rounds -------------------------------------------------------------------------------------------


def engine_round(emitted: int, kind: str = "spec") -> dict[str, Any]:
    return {"kind": kind, "rows": 8, "drafted": 7, "accepted": emitted - 1, "emitted": emitted} | {
        f"{name}_ns": 1000 * i for i, name in enumerate(("draft", "verify", "sample", "commit", "total"), start=1)
    }


def metrics(*rounds: dict[str, Any]) -> dict[str, Any]:
    return {"metrics": {"queue_ns": 1, "prefill_ns": 2, "decode_ns": 3, "num_q1_steps": 0, "rounds": list(rounds)}}


def test_engine_rounds_stand_beside_the_clients(wire: Any) -> None:
    usage = wire.usage(6, **metrics(engine_round(2), engine_round(3, "q1")))
    request = wire.play(*wire.stream(*three(wire)[:-1], usage)).request
    assert_is_result_with_engine(request)
    assert [(row.client_tokens, row.emitted, row.engine_ns) for row in request.rounds] == [(2, 2, 5000), (3, 3, 5000)]
    assert (request.n_rounds, request.n_q1_steps) == (1, 1)


def assert_is_result_with_engine(request: Request) -> None:
    assert (request.admissible, request.error) == (True, "")
    assert (request.engine_queue_ns, request.engine_prefill_ns, request.engine_decode_ns) == (1, 2, 3)
    assert request.accepted_sha256 == token_sha256([1, 2])
    assert request.emitted_sha256 == token_sha256([2, 3])
    assert request.drafted_sha256 == token_sha256([7, 7])


def test_merged_chunks_leave_the_engines_rounds_usable(wire: Any) -> None:
    usage = wire.usage(6, **metrics(engine_round(2), engine_round(3)))
    request = wire.play(*wire.stream(wire.text("a", A), wire.text("bcdef", B + C, "stop"), usage)).request
    assert_is_result_with_engine(request)
    assert request.reasons == (Reason.CLIENT_ROUNDS_UNUSABLE,)
    assert request.n_rounds == 2
    assert [(row.index, row.client_tokens, row.engine_ns) for row in request.rounds] == [
        (1, None, 5000), (2, None, 5000), (3, 5, None),
    ]  # fmt: skip


def test_bundled_first_chunk_is_a_merge_and_no_mismatch(wire: Any) -> None:
    usage = wire.usage(6, **metrics(engine_round(2), engine_round(3)))
    request = wire.play(*wire.stream(wire.text("abc", A + B), wire.text("def", C, "stop"), usage)).request
    assert (request.admissible, request.reasons) == (True, (Reason.CLIENT_ROUNDS_UNUSABLE,))


def test_engine_that_emitted_other_than_it_sent(wire: Any) -> None:
    usage = wire.usage(6, **metrics(engine_round(2), engine_round(4)))
    request = wire.play(*wire.stream(*three(wire)[:-1], usage)).request
    assert_fails(request, Reason.EMITTED_MISMATCH, "emitted 7 tokens but usage.completion_tokens is 6")


def test_answer_of_the_prefill_alone(wire: Any) -> None:
    request = wire.play(*wire.stream(wire.text("a", A, "stop"), wire.usage(1, **metrics()))).request
    assert request.admissible
    assert (request.n_rounds, request.rounds) == (0, ())
    assert request.accepted_sha256 == token_sha256([])


def profile(**changes: Any) -> dict[str, Any]:
    time = {"piece": "verify", "operator": "gdn", "schedule": "bv8", "calls": 9, "launches": 18, "total_ns": 70}
    other = {"piece": "", "operator": "", "schedule": "", "calls": 0, "launches": None, "total_ns": 5}
    return {"rounds": 2, "clock": "device", "round_ns": 100, "times": [time, other]} | changes


def with_profile(wire: Any, told: Any) -> Any:
    usage = metrics(engine_round(2), engine_round(3))
    usage["metrics"]["profile"] = told
    return wire.play(*wire.stream(*three(wire)[:-1], wire.usage(6, **usage)))


def test_a_profile_is_kept_of_a_request_that_was_to_be_profiled(wire: Any) -> None:
    played = with_profile(wire, profile())
    assert_is_result_with_engine(played.request)
    assert played.request.profile is None  # it was not asked for: whatever it is, it is not a profiled run's
    request = observe(played.exchange, played.reply, replace(wire.context({}), profiled=True))
    times = OperatorTime("verify", "gdn", "bv8", 9, 18, 70), OperatorTime("", "", "", 0, None, 5)
    assert request.profile == Profile(2, "device", 100, times)
    assert (request.admissible, request.reasons) == (False, (Reason.PROFILED,))
    assert request.accepted_sha256 == played.request.accepted_sha256  # a pair's exactness is what it was


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ([], "profile is [], which is not an object"),
        (profile(rounds=None), "profile.rounds is null"),
        (profile(clock="sundial"), "clock is 'sundial', which is not one of device, host"),
        (profile(times=[{"calls": 1}]), "profile.times.total_ns is null"),
        (profile(times=[{"calls": -1, "total_ns": 1}]), "calls is -1"),
        (profile(times=[{"calls": 1, "total_ns": 1.5}]), "total_ns is 1.5"),
    ],
)
def test_a_profile_is_whole_or_malformed(wire: Any, told: Any, names: str) -> None:
    assert_fails(with_profile(wire, told).request, Reason.MALFORMED_STREAM, names)


@pytest.mark.parametrize(
    ("wanted", "said", "reason"),
    [
        (True, "restored", Reason.PROMPT_RESTORED),
        (True, "computed", Reason.CACHE_HIT),  # a prefix cache beside it
        (True, None, Reason.CACHE_HIT),
        (False, "restored", Reason.CACHE_HIT),  # nobody asked
    ],
)
def test_a_restored_prompt_counts_where_the_plan_wanted_it(wire: Any, wanted: bool, said: Any, reason: Reason) -> None:
    usage = wire.usage(6, cached=4, **metrics(engine_round(2), engine_round(3)))
    usage["metrics"] |= {"prompt_state": said} if said else {}
    played = wire.play(*wire.stream(*three(wire)[:-1], usage))
    request = observe(
        played.exchange, played.reply, replace(wire.context({}), prompt_state="snapshot" if wanted else "")
    )
    assert (request.reasons, request.admissible) == ((reason,), reason is Reason.PROMPT_RESTORED)
    assert (quantities.ttft_ms(request) is None) == (reason is Reason.PROMPT_RESTORED)
    assert request.cached_tokens == 4


@pytest.mark.parametrize(("said", "cached"), [("computed", 0), ("restored", 4)])
def test_a_shared_prompt_gives_no_arm_a_time_to_first_token(wire: Any, said: str, cached: int) -> None:
    usage = wire.usage(6, cached=cached, **metrics(engine_round(2), engine_round(3)))
    usage["metrics"] |= {"prompt_state": said}
    played = wire.play(*wire.stream(*three(wire)[:-1], usage))
    request = observe(played.exchange, played.reply, replace(wire.context({}), prompt_state="shared"))
    assert (request.reasons, quantities.ttft_ms(request)) == ((Reason.PROMPT_RESTORED,), None)


def test_metrics_of_another_server_are_not_ours(wire: Any) -> None:
    usage = wire.usage(6, metrics={"time_to_first_token_ms": 5.0, "generation_time_ms": 9.0})
    request = wire.play(*wire.stream(*three(wire)[:-1], usage)).request
    assert request.engine_decode_ns is None
    assert_is_result(request)


# -- a server that counts its steps and does not list them -------------------------------------------------------------


def test_counted_steps_confirm_the_chunks(wire: Any) -> None:
    request = wire.play(*wire.stream(*three(wire)), counters={DECODE_STEPS: 2}).request
    assert_is_result(request)


def test_merged_chunks_are_found_by_the_counter(wire: Any) -> None:
    """vLLM puts several steps into one chunk when its front end falls behind: R is the server's count."""
    request = wire.play(*wire.stream(*three(wire)), counters={DECODE_STEPS: 5}).request
    assert (request.admissible, request.reasons) == (True, (Reason.CLIENT_ROUNDS_UNUSABLE,))
    assert (request.n_rounds, len(request.rounds)) == (5, 2)


@pytest.mark.parametrize("steps", [1, 6, 40])
def test_count_that_cannot_be_this_requests_is_not_taken(wire: Any, steps: int) -> None:
    """Fewer steps than chunks, or more than tokens: somebody else used the server, or the counter was late."""
    request = wire.play(*wire.stream(*three(wire)), counters={DECODE_STEPS: steps}).request
    assert request.reasons == (Reason.CLIENT_ROUNDS_UNUSABLE,)
    assert request.n_rounds is None


def test_first_chunk_of_several_tokens_swallowed_rounds(wire: Any) -> None:
    chunks = [wire.text("abc", A + B), wire.text("def", C, "stop"), wire.usage(6)]
    request = wire.play(*wire.stream(*chunks), counters={DECODE_STEPS: 5}).request
    assert request.reasons == (Reason.CLIENT_ROUNDS_UNUSABLE,)
    assert request.n_rounds is None


# -- connections and sizes ---------------------------------------------------------------------------------------------


def test_keep_alive_uses_one_connection(wire: Any) -> None:
    server = wire.serve(wire.stream(*three(wire)))
    for _ in range(3):
        assert_is_result(wire.ask(server, keep_alive=True).request)
    assert server.num_connections == 1
    assert server.requests[0][1]["connection"] == "keep-alive"


def test_every_request_has_a_connection_of_its_own(wire: Any) -> None:
    server = wire.serve(wire.stream(*three(wire)))
    for _ in range(3):
        assert_is_result(wire.ask(server).request)
    assert server.num_connections == 3
    assert server.requests[0][1]["connection"] == "close"


def test_idle_connection_closed_by_the_server_is_replaced(wire: Any) -> None:
    server = wire.serve([*wire.stream(*three(wire)), wire.CLOSE], wire.stream(*three(wire)))
    for _ in range(2):
        assert_is_result(wire.ask(server, keep_alive=True).request)
    assert server.num_connections == 2


@pytest.mark.parametrize("end", ["CLOSE", "RESET"])
def test_idle_connection_that_ends_under_the_next_request_is_replaced(wire: Any, end: str) -> None:
    """The server gave up waiting just as we sent: it looked alive to us, and not a byte came back."""
    server = wire.serve(wire.stream(*three(wire)), [getattr(wire, end)], wire.stream(*three(wire)))
    for _ in range(2):
        assert_is_result(wire.ask(server, keep_alive=True).request)
    assert (server.num_connections, len(server.requests)) == (2, 3)


@pytest.mark.parametrize("keep_alive", [False, True])
def test_request_is_repeated_on_kept_connections_only(wire: Any, keep_alive: bool) -> None:
    """A server that drops a request on a connection of its own has dropped it; so has one that does it twice."""
    server = wire.serve(wire.stream(*three(wire)), [wire.RESET])
    assert_is_result(wire.ask(server, keep_alive=keep_alive).request)
    assert wire.ask(server, keep_alive=keep_alive).request.reasons == (Reason.DISCONNECT,)
    assert len(server.requests) == 2 + keep_alive


def test_two_servers_have_each_its_own_connection(wire: Any) -> None:
    """As the arms of a pair do that are two lives: neither is a stranger to the client when its turn comes."""
    servers = [wire.serve(wire.stream(*three(wire))) for _ in range(2)]
    for server in servers * 3:
        assert_is_result(wire.ask(server, keep_alive=True).request)
    assert [server.num_connections for server in servers] == [1, 1]


def test_server_that_announces_the_end_of_the_connection(wire: Any) -> None:
    script = wire.stream(*three(wire))
    script[0] = script[0].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    server = wire.serve([*script, wire.CLOSE])
    for _ in range(2):
        assert_is_result(wire.ask(server, keep_alive=True).request)
    assert server.num_connections == 2


def test_prompt_of_256k_tokens(wire: Any) -> None:
    ids = list(range(100_000, 100_000 + 262_136))
    body = json.dumps({"prompt": ids, "max_tokens": 8}).encode()
    server = wire.serve(wire.stream(*three(wire)))
    request = wire.ask(server, body=body).request
    assert_is_result(request)
    assert json.loads(server.requests[0][2])["prompt"] == ids


def test_long_answer_keeps_every_round(wire: Any) -> None:
    num_rounds = 3000
    events = [wire.chunk(wire.event(wire.text("x", [i, i]))) for i in range(num_rounds)]
    script = [wire.HEAD, wire.chunk(wire.event(wire.text("x", [0]))), *events]
    tail = [wire.chunk(wire.event(v)) for v in (wire.usage(1 + 2 * num_rounds), "[DONE]")]
    request = wire.play(*script, *tail, wire.END).request
    assert request.n_rounds == num_rounds
    assert request.token_ids == (0, *(i for i in range(num_rounds) for _ in range(2)))


# -- the parser alone --------------------------------------------------------------------------------------------------


def test_module_never_counts_text() -> None:
    """No tokenizer anywhere near the reply: ids come from the server alone."""
    source = Path(__file__).parents[3] / "orchestrator/measuring"
    for name in ("stream.py", "observe.py", "exchange.py", "client.py", "recorder.py"):
        assert not re.search(r"import.*tokenizers|AutoTokenizer", (source / name).read_text())


@pytest.mark.parametrize(("num_together", "admissible"), [(2, True), (8, False)])
def test_chunks_that_arrive_together_are_a_flag_and_beyond_a_limit_an_exclusion(
    wire: Any, num_together: int, admissible: bool
) -> None:
    alone = [wire.chunk(wire.event(wire.text("x", [i]))) for i in range(10 - num_together)]
    together = b"".join(wire.chunk(wire.event(wire.text("y", [i]))) for i in range(num_together))
    tail = [wire.chunk(wire.event(v)) for v in (wire.usage(10), "[DONE]")]
    script = [part for data in (*alone, together, *tail) for part in (data, wire.PAUSE_S)]
    request = wire.play(wire.HEAD, wire.PAUSE_S, *script, wire.END).request
    assert request.reasons == (Reason.COALESCED_CHUNKS,)
    assert request.admissible == admissible
    assert ("80% of the content chunks" in request.error) != admissible

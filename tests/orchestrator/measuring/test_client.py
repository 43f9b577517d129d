"""The client's own behaviour: its process, its stamps, and how it is calibrated. Cases 2, 3, 8, 10, 11."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.errors import HelperLost, UsageError
from campaigns.reasons import Reason
from campaigns.records import Stamp
from orchestrator.measuring import calibration
from orchestrator.measuring.arrivals import arrivals
from orchestrator.measuring.calibration import Sight, calibrate, null_server, observe_null, summary
from orchestrator.measuring.client import Call, Client
from orchestrator.measuring.exchange import Event, EventDecoder, parse
from orchestrator.measuring.framing import Framing
from orchestrator.measuring.observe import observe
from orchestrator.measuring.stream import read


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_end(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


# -- stamps --------------------------------------------------------------------------------------------------------


def test_stamps_are_in_order(wire: Any) -> None:
    """Case 8."""
    chunks = [wire.text("a", [1]), wire.text("b", [2], "stop"), wire.usage(2)]
    request = wire.play(*wire.stream(*chunks)).request
    moments = [
        request.sched_ns,
        request.send_ns,
        request.first_event_ns,
        request.first_content_ns,
        request.last_content_ns,
        request.end_ns,
    ]
    assert moments == sorted(moments)


def test_connecting_is_not_part_of_ttft(wire: Any) -> None:
    """Sending starts on an open connection, whether this request opened it or the one before."""
    server = wire.serve(wire.stream(wire.text("a", [1], "stop"), wire.usage(1)))
    first, second = (wire.ask(server, keep_alive=True).request for _ in range(2))
    assert server.num_connections == 1
    for request in (first, second):
        assert request.sched_ns < request.send_ns < request.first_event_ns


def test_client_never_sees_a_chunk_before_it_was_sent(client: Client) -> None:
    with null_server(interval_us=500) as base_url:
        sights = observe_null(base_url, client, seconds=0.2)
    assert len(sights) >= 2
    assert all(len(sight.server_ns) == calibration.NUM_ROUNDS + 1 for sight in sights)
    assert all(delivery > 0 for sight in sights for delivery in sight.delivery_ns)


def test_rounds_are_the_gaps_of_the_stamps(wire: Any) -> None:
    """Cases 2 and 3. Never rescaled, and the time to the first token is not among them."""
    chunks = [wire.text("x", [i, i]) for i in range(6)] + [wire.text("x", [9], "stop"), wire.usage(13)]
    _, reply, request = vars(wire.play(*wire.stream(*chunks))).values()
    stamps = [chunk.at_ns for chunk in reply.chunks]
    assert [row.client_ns for row in request.rounds] == [after - before for before, after in pairwise(stamps)]
    assert len(request.rounds) == len(stamps) - 1


# -- arrivals: the kernel's stamps ------------------------------------------------------------------------------------

OFFSET = 5_000  # monotonic - real


def told(kernel: list[int], offsets: tuple[int, ...] = (OFFSET, OFFSET)) -> tuple[tuple[int, ...], Stamp]:
    """Of a client that had the bytes at 1000, 2000, 3000 and sent at 500, its kernel's stamps given as monotonic."""
    clocks = [(10**9, 10**9 - offset) for offset in offsets]
    found = arrivals([1000, 2000, 3000], [ns and ns - OFFSET for ns in kernel], clocks, 500)
    return found.at_ns, found.stamp


def test_the_kernel_says_when_bytes_arrived() -> None:
    assert told([900, 1900, 2900]) == ((900, 1900, 2900), Stamp.KERNEL)


def test_arrivals_behind_a_process_that_did_not_run_are_right() -> None:
    """Two chunks came before the process returned from its first recv: both stamps lie before that return."""
    assert told([600, 700, 2900]) == ((600, 700, 2900), Stamp.KERNEL)


@pytest.mark.parametrize(
    "kernel", [[900, 0, 2900], [400, 1900, 2900], [900, 2100, 2900], [1000, 900, 2900]],
    ids=["missing", "before sending", "after its recv", "backwards"],
)  # fmt: skip
def test_one_impossible_stamp_leaves_the_request_to_the_clients(kernel: list[int]) -> None:
    assert told(kernel) == ((1000, 2000, 3000), Stamp.CLIENT)


def test_a_wall_clock_that_was_set_leaves_the_request_to_the_clients() -> None:
    assert told([900, 1900, 2900], (OFFSET, OFFSET + 11_000)) == ((1000, 2000, 3000), Stamp.CLIENT)
    assert told([900, 1900, 2900], (OFFSET, OFFSET + 8))[1] is Stamp.KERNEL


def test_a_chunk_has_the_arrival_it_had_while_the_client_did_not_run(wire: Any) -> None:
    """The recording process is stopped over the second chunk: only the kernel knows when that came."""
    stopped_s = 0.1
    client = wire.client
    client.record(Call(wire.serve([b""]).url, "/", b"", 0.2))  # it runs
    recorder = client._child.pid
    chunks = [wire.chunk(wire.event(v)) for v in (wire.text("a", [1]), wire.text("b", [2], "stop"), wire.usage(2))]

    def stop() -> bytes:
        os.kill(recorder, signal.SIGSTOP)
        return chunks[1]

    def go_on() -> bytes:
        os.kill(recorder, signal.SIGCONT)
        return b""

    script = [
        wire.HEAD,
        wire.PAUSE_S,
        chunks[0],
        wire.PAUSE_S,
        stop,
        stopped_s,
        go_on,
        wire.PAUSE_S,
        *chunks[2:],
        wire.END,
    ]
    request = wire.ask(wire.serve(script)).request
    assert request.stamp is Stamp.KERNEL
    assert request.last_wake_ns > stopped_s * 0.5e9
    assert request.last_content_ns - request.first_content_ns < request.last_wake_ns


def test_chunks_of_a_request_without_kernel_stamps_are_told_by_the_client(wire: Any) -> None:
    server = wire.serve(wire.stream(wire.text("a", [1]), wire.text("b", [2], "stop"), wire.usage(2)))
    recording = wire.client.record(Call(server.url, "/v1/completions", b"{}", 5.0))
    silent = replace(recording, kernel=(0,) * len(recording.stamps))
    exchange = parse(silent)
    request = observe(exchange, read(exchange.events), wire.context({}))
    assert (request.admissible, request.reasons, request.stamp) == (True, (Reason.CLIENT_STAMPS,), Stamp.CLIENT)
    assert {request.first_content_ns, request.last_content_ns} <= set(recording.stamps)
    assert (request.first_wake_ns, request.last_wake_ns, request.rounds[0].wake_ns) == (None, None, None)


# -- process -------------------------------------------------------------------------------------------------------


def test_lost_recorder_is_an_error_and_the_next_request_gets_a_new_one(wire: Any) -> None:
    server = wire.serve(wire.stream(wire.text("a", [1], "stop"), wire.usage(1)))
    call = Call(server.url, "/v1/completions", b"{}", 5.0)
    with Client() as client:
        assert client.call(call).failure is None
        assert client._child is not None
        os.kill(client._child.pid, signal.SIGKILL)
        with pytest.raises(HelperLost, match="the recording process ended with code"):
            client.call(call)
        assert client.call(call).failure is None


def test_an_order_that_a_dead_recorder_never_took_leaves_no_pipe_open(wire: Any) -> None:
    client = Client()
    with client:
        child = client._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        child.kill()
        child.wait()
        child.stdin.write(b"an order")  # waits in the buffer, and can be flushed nowhere
    assert child.stdin.closed and child.stdout.closed


def test_client_cannot_be_pinned_to_a_cpu_that_is_not_there(wire: Any) -> None:
    with Client(cpus=[4095]) as client, pytest.raises(HelperLost, match="the recording process ended with code"):
        client.call(Call("http://127.0.0.1:9", "/", b"", 1.0))


def test_pinned_client_runs_on_its_cpus(wire: Any) -> None:
    server = wire.serve(wire.stream(wire.text("a", [1], "stop"), wire.usage(1)))
    cpu = min(os.sched_getaffinity(0))
    with Client(cpus=[cpu]) as client:
        client.call(Call(server.url, "/", b"{}", 5.0))
        assert client._child is not None
        assert os.sched_getaffinity(client._child.pid) == {cpu}


_OWNER = """
import sys
from orchestrator.measuring.client import Call, Client
with Client() as client:
    print(client._child.pid, flush=True)
    client.record(Call(sys.argv[1], "/", b"{}", 60.0))
"""


def test_recorder_ends_with_its_parent_in_mid_request(wire: Any) -> None:
    server = wire.serve([wire.HEAD, 30.0])
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, server.url], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    while not server.requests:
        time.sleep(0.02)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert await_end(child)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1", "127.0.0.1:80", "http://"])
def test_urls_that_cannot_be_measured(url: str) -> None:
    with pytest.raises(UsageError, match="http://HOST:PORT"):
        Call(url, "/", b"", 1.0).head()


def test_path_below_a_prefix(wire: Any) -> None:
    server = wire.serve(wire.stream(wire.text("a", [1], "stop"), wire.usage(1)))
    server.url += "/engine/"
    wire.ask(server, headers=(("Authorization", "Bearer x"),))
    line, headers, body = server.requests[0]
    assert line == "POST /engine/v1/completions HTTP/1.1"
    assert (headers["authorization"], headers["accept-encoding"], body) == ("Bearer x", "identity", b"{}")


# -- framing and events, whatever the cut --------------------------------------------------------------------------


def test_framing_finds_the_end_for_every_cut() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = head + b"5\r\n0\r\n\r\n\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n"
    for cut in range(1, len(whole)):
        framing = Framing()
        assert not framing.feed(whole[:cut])
        assert framing.feed(whole[cut:])
        assert framing.reusable


def test_bytes_behind_the_end_spoil_the_connection() -> None:
    framing = Framing()
    assert framing.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP")
    assert not framing.reusable


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=6).filter(lambda t: not set(t) & set("\r\n")), min_size=1, max_size=5), st.data())
def test_decoder_gives_the_same_events_for_every_cut(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    whole = b"".join(b"data:x" + text.encode() + end + b"data:y" + end + end for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    decoder, events = EventDecoder(), []
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        events += decoder.feed(whole[start:stop])
    assert [event for _, event in events] == [f"x{text}\ny" for text in texts]


def test_events_after_done_are_not_read() -> None:
    late = json.dumps({"choices": [{"index": 0, "text": "late"}]})
    assert read((Event(1, "[DONE]"), Event(2, late))).text == ""


# -- calibration -----------------------------------------------------------------------------------------------------


def sight(*delivery_ns: int, interval_ns: int = 1_000_000) -> Sight:
    server = [interval_ns * i for i in range(len(delivery_ns))]
    return Sight(tuple(server), tuple(s + d for s, d in zip(server, delivery_ns, strict=True)))


def test_constant_delivery_is_no_error() -> None:
    result = summary([sight(*[70_000] * 65)] * 5)
    assert (result.n_chunks, result.delivery_p50_ns, result.delivery_p99_ns) == (325, 70_000, 70_000)
    assert (result.request_bias_ns, result.round_bias_ns, result.resolution_ns) == (0, 0, 0)


def test_late_ends_show_in_the_request_average_and_late_middles_do_not() -> None:
    late_end = summary([sight(*[0] * 64, 640_000)] * 3)
    assert (late_end.request_bias_ns, late_end.resolution_ns) == (10_000, 14_143)
    late_middle = summary([sight(*[0] * 30, 900_000, *[0] * 34)] * 3)
    assert (late_middle.request_bias_ns, late_middle.delivery_p50_ns) == (0, 0)


def test_growing_delivery_shows_in_the_round_median() -> None:
    assert summary([sight(*range(0, 65 * 500, 500))] * 2).round_bias_ns == 500


def test_early_and_late_requests_do_not_cancel() -> None:
    early, late = sight(*[64_000] * 64, 0), sight(*[0] * 64, 64_000)
    assert summary([early, late]).request_bias_ns == 1000


def test_resolution_is_that_of_the_worst_requests() -> None:
    good, bad = sight(*[0] * 65), sight(*[0] * 64, 6_400_000)
    assert summary([good] * 9 + [bad]).resolution_ns > summary([good] * 99 + [bad]).resolution_ns == 0


def test_calibration_measures_with_the_clients_own_connection(client: Client) -> None:
    """Case 10."""
    result = calibrate(0.5, client)
    assert result.n_chunks >= 2 * 65
    assert 0 < result.delivery_p50_ns <= result.delivery_p99_ns
    assert result.resolution_ns >= result.request_bias_ns > 0


def test_slow_client_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 11. A client that stamps late must come out as one: 5 ms on every chunk but the first."""
    honest = calibration._seen

    def late(exchange: Any) -> tuple[int, ...]:
        first, *rest = honest(exchange)
        return (first, *(ns + 5_000_000 for ns in rest))

    monkeypatch.setattr(calibration, "_seen", late)
    with Client() as client:
        result = calibrate(0.3, client)
    assert result.delivery_p50_ns > 5_000_000
    assert result.request_bias_ns > 5_000_000 / calibration.NUM_ROUNDS / 2


def test_calibration_states_the_error_for_every_manner_of_a_server(client: Client) -> None:
    result = calibrate(0.1, client)
    assert None not in (result.nagle_bias_ns, result.coalescing_bias_ns, result.fragments_bias_ns)
    assert result.coalesced_share is not None and 0 <= result.coalesced_share <= 1


@pytest.mark.parametrize("manner", calibration.MANNERS)
def test_manners_of_the_null_server_are_what_they_say(client: Client, manner: str) -> None:
    """By the order of what arrives: chunks of one write share their arrival, and a chunk cut in two arrives once."""
    with null_server() as base_url:
        seen = calibration._sight(base_url, client, calibration._call(base_url, 4, manner))
    sent = list(seen.server_ns)
    assert len(seen.client_ns) == len(sent) == 5
    assert all(at > sent_ns for at, sent_ns in zip(seen.client_ns, sent, strict=True))
    pairs = [sent[1] == sent[2], sent[3] == sent[4]]
    assert pairs == [manner == "coalescing"] * 2
    if manner == "coalescing":
        assert seen.client_ns[1] == seen.client_ns[2] and seen.client_ns[3] == seen.client_ns[4]

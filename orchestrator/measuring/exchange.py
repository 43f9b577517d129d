"""From recorded bytes to stamped events: HTTP by h11, Server-Sent Events by the rules of the HTML standard. Pure.

The bytes of each `recv` are fed in turn, so an event carries the stamp of the one that completed it (its blank line).
Knows nothing of JSON but the shape of an error answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import h11

from campaigns.reasons import Reason
from campaigns.records import Stamp
from orchestrator.measuring.arrivals import Arrivals, arrivals
from orchestrator.servers.busy import retry_after_s
from orchestrator.servers.fields import whole_text

_LINE_END = re.compile(rb"\r\n|\n|\r")
_QUOTED_CHARS = 300
DONE = "[DONE]"


@dataclass(frozen=True)
class Recording:
    """What the recording process saw of one request; times are CLOCK_MONOTONIC in nanoseconds."""

    sched_ns: int
    send_ns: int
    end_ns: int  # the last recv
    outcome: str  # complete | closed | reset | stall | refused | framing
    message: str
    listening: bool  # whether the server still accepted connections after a lost response
    stamps: tuple[int, ...]  # one per recv: when the process had it
    kernel: tuple[int, ...]  # one per recv: CLOCK_REALTIME of its arrival, 0 where the kernel did not say
    clocks: tuple[tuple[int, int], ...]  # (CLOCK_MONOTONIC, CLOCK_REALTIME) before and after the request
    sizes: tuple[int, ...]  # bytes per recv
    received: bytes


@dataclass(frozen=True)
class Event:
    """`at_ns` is the arrival of the recv that completed it; events of one recv share it."""

    at_ns: int
    data: str
    kind: str = "message"  # the `event:` field
    wake_ns: int = 0  # from the arrival until the client's process had it; 0 where it is told by the client's stamp


@dataclass(frozen=True)
class Exchange:
    """One request and its answer. `failure` says why it is not a complete stream; the events up to there are kept."""

    sched_ns: int
    send_ns: int
    end_ns: int
    status: int | None
    events: tuple[Event, ...]
    failure: Reason | None
    message: str
    stamp: Stamp = Stamp.CLIENT  # whose clock the events are told by
    retry_after_s: float | None = None  # a busy server's word: how long to leave it alone


class EventDecoder:
    """Cuts bytes into events. Lines end in LF, CRLF or CR; a comment line starts with a colon."""

    def __init__(self) -> None:
        self._tail = b""
        self._after_cr = False
        self._started = False
        self._data: list[str] = []
        self._kind = ""

    def feed(self, data: bytes) -> Iterator[tuple[str, str]]:
        """(kind, data) of each event that these bytes complete. UnicodeDecodeError on bytes that are not UTF-8."""
        if self._after_cr and data.startswith(b"\n"):
            data, self._after_cr = data[1:], False
        if not data:
            return
        self._after_cr = data.endswith(b"\r")
        *lines, self._tail = _LINE_END.split(self._tail + data)
        for line in lines:
            event = self._take(line.decode())
            if event is not None:
                yield event

    def close(self) -> Iterator[tuple[str, str]]:
        """The event that the end of the message completes in place of a blank line."""
        yield from self.feed(b"\n\n" if self._tail or self._data else b"")

    def _take(self, line: str) -> tuple[str, str] | None:
        if not self._started:
            line, self._started = line.removeprefix("\ufeff"), True
        if line:
            self._field(*line.partition(":")[::2])
            return None
        kind, data = self._kind or "message", self._data
        self._kind, self._data = "", []
        return (kind, "\n".join(data)) if data else None

    def _field(self, name: str, value: str) -> None:
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value


class _Answer:
    """What the bytes say so far; mutable while they are read."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_stream = False
        self.kind, self.encoding = "none", "identity"
        self.location = ""
        self.retry_after_s: float | None = None
        self.body = bytearray()  # kept when the answer is not a stream
        self.events: list[Event] = []
        self.complete = False
        self.decoder = EventDecoder()

    def take(self, event: h11.Event | type, at_ns: int, wake_ns: int) -> None:
        if isinstance(event, h11.Response):
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            self.status = event.status_code
            self.kind = headers.get("content-type", "none")
            self.encoding = headers.get("content-encoding", "").strip().lower() or "identity"
            self.is_stream = self.kind.lower().startswith("text/event-stream")
            self.location = headers.get("location", "")
            after = headers.get("retry-after", "")
            self.retry_after_s = retry_after_s(event.status_code, after, headers.get("date", ""))
        elif isinstance(event, h11.Data) and self.is_stream:
            self._append(self.decoder.feed(bytes(event.data)), at_ns, wake_ns)
        elif isinstance(event, h11.Data):
            self.body += event.data
        elif isinstance(event, h11.EndOfMessage):
            self._append(self.decoder.close(), at_ns, wake_ns)
            self.complete = True

    def _append(self, events: Iterator[tuple[str, str]], at_ns: int, wake_ns: int) -> None:
        self.events += [Event(at_ns, data, kind, wake_ns) for kind, data in events]


def parse(recording: Recording) -> Exchange:
    answer = _Answer()
    arrived = arrivals(recording.stamps, recording.kernel, recording.clocks, recording.send_ns)
    broken = _read(recording, arrived, answer)
    failure, message = _failure(recording, answer, broken)
    return Exchange(
        sched_ns=recording.sched_ns,
        send_ns=recording.send_ns,
        end_ns=recording.end_ns,
        status=answer.status,
        events=tuple(answer.events),
        failure=failure,
        message=message,
        stamp=arrived.stamp,
        retry_after_s=answer.retry_after_s,
    )


def _read(recording: Recording, arrived: Arrivals, answer: _Answer) -> str:
    """Fill `answer`; the sentence that says what is malformed, or nothing."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "server"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    try:
        at = 0
        for at_ns, stamp_ns, size in zip(arrived.at_ns, recording.stamps, recording.sizes, strict=True):
            connection.receive_data(recording.received[at : at + size])
            at += size
            _drain(connection, answer, at_ns, stamp_ns - at_ns)
        if recording.outcome == "closed" and answer.status is not None and not answer.complete:
            connection.receive_data(b"")
            _drain(connection, answer, recording.end_ns, 0)
    except h11.RemoteProtocolError as error:
        return f"not HTTP/1.1: {error}"
    except UnicodeDecodeError as error:
        return f"an event is not UTF-8: {error}"
    return ""


def _drain(connection: h11.Connection, answer: _Answer, at_ns: int, wake_ns: int) -> None:
    while not answer.complete:
        event = connection.next_event()
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return
        answer.take(event, at_ns, wake_ns)


def _failure(recording: Recording, answer: _Answer, broken: str) -> tuple[Reason | None, str]:
    """The first thing that makes the answer less than a complete stream. What follows `[DONE]` cannot spoil it."""
    status = answer.status
    if status is not None and 300 <= status < 400:
        return Reason.REDIRECT, f"HTTP {status} to {answer.location or 'nowhere'}: point server.base_url at the target"
    if status is not None and status >= 400:
        return Reason.HTTP_ERROR, f"HTTP {status}: {_error_text(bytes(answer.body))}"
    if any(event.data.strip() == DONE for event in answer.events):
        return None, ""
    if broken and status is None:  # another protocol: what happened to its connection says less
        return Reason.MALFORMED_STREAM, broken
    lost = None if answer.complete else _transport_failure(recording, answer)
    if lost is not None:
        return lost
    if answer.encoding != "identity":
        return Reason.MALFORMED_STREAM, f"the answer is encoded as {answer.encoding}, though identity was asked for"
    if broken:
        return Reason.MALFORMED_STREAM, broken
    if not answer.is_stream:
        return _not_a_stream(answer.kind, bytes(answer.body))
    return None, ""


def _transport_failure(recording: Recording, answer: _Answer) -> tuple[Reason, str] | None:
    seen = f"after {len(answer.events)} events"
    if recording.outcome == "stall":
        return Reason.STALL, f"{recording.message} {seen}"
    if recording.outcome == "framing":
        return Reason.MALFORMED_STREAM, f"not HTTP/1.1: {recording.message}"
    if recording.outcome == "refused":
        return Reason.SERVER_DIED, f"no connection: {recording.message}"
    if recording.outcome not in ("closed", "reset"):
        return None
    if recording.listening:
        return Reason.DISCONNECT, f"the server closed the connection {seen} {recording.message}".rstrip()
    return Reason.SERVER_DIED, f"the server closed the connection {seen} and accepts no other"


def _not_a_stream(kind: str, body: bytes) -> tuple[Reason, str]:
    text = _error_text(body)
    if b'"error"' in body:
        return Reason.ERROR_EVENT, text
    return (
        Reason.MALFORMED_STREAM,
        f"the server did not stream its answer: content type {kind}, text/event-stream was asked for: {text}",
    )


def _error_text(body: bytes) -> str:
    """The message of an error in OpenAI's shape, else the beginning of the body."""
    text = body.decode(errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text[:_QUOTED_CHARS]
    error = value.get("error", value) if isinstance(value, dict) else value
    message = (error.get("message") or error) if isinstance(error, dict) else error
    return whole_text(str(message))[:_QUOTED_CHARS]

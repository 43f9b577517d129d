"""Connections that cannot be held for nothing: how many may be open, and how long a request may take to arrive.

uvicorn bounds idle kept connections alone. A request's header and its body each have a time as a whole, so that a byte
now and then does not prolong it; an answer that its reader does not take is given up. Knows no routes.
"""

from __future__ import annotations

import json
from asyncio import TimerHandle, Transport
from dataclasses import dataclass
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from runtime.http.errors import ApiError

_REST_S = 5.0  # for what a client still sends when it already has its answer


@dataclass(frozen=True)
class ConnectionLimits:
    max_open: int = 512
    header_s: float = 20.0  # from the first byte, or the connection's beginning, to the end of the header
    body_s: float = 60.0  # from there to the end of the body
    write_s: float = 60.0  # without the reader taking what fills its buffers


def bounded(limits: ConnectionLimits) -> type[H11Protocol]:
    """uvicorn's protocol under these limits, for its configuration."""
    return type("Bounded", (_Bounded,), {"limits": limits})


class _Bounded(H11Protocol):
    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    _awaited: str = ""  # what the timer is for
    _reading: TimerHandle | None = None
    _writing: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:
        is_full = len(self.connections) >= self.limits.max_open
        super().connection_made(transport)
        if is_full:
            self._refuse(503, f"{self.limits.max_open} connections are open, which is the limit; try again later")
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writing = _cancelled(self._writing)

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading, self._writing = _cancelled(self._reading), _cancelled(self._writing)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """A timer for what is awaited now; one that runs for the same thing goes on."""
        awaited = self._awaits()
        if awaited == self._awaited:
            return
        self._awaited, self._reading = awaited, _cancelled(self._reading)
        if awaited:
            within_s = {"header": self.limits.header_s, "body": self.limits.body_s, "rest": _REST_S}[awaited]
            self._reading = self.loop.call_later(within_s, self._late)

    def _awaits(self) -> str:
        if self.transport.is_closing():
            return ""
        if self.conn.their_state is h11.SEND_BODY:
            return "rest" if self.cycle.response_complete else "body"
        is_kept = self.timeout_keep_alive_task is not None  # idle: uvicorn's own timer
        return "header" if self.conn.their_state is h11.IDLE and not is_kept else ""

    def _late(self) -> None:
        said_something = self._awaited == "body" or self.conn.trailing_data[0]
        if said_something and self._awaited != "rest":
            within_s = self.limits.body_s if self._awaited == "body" else self.limits.header_s
            self._refuse(408, f"the request's {self._awaited} did not arrive within {within_s:g} s")
        self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """An error in the shape of all others, past the application; the connection ends with it."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            content = json.dumps(ApiError(status, message).body()).encode()
            headers = [("content-type", "application/json"), ("content-length", str(len(content)))]
            response = h11.Response(
                status_code=status, headers=[*headers, ("connection", "close")], reason=STATUS_PHRASES[status]
            )
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _cancelled(timer: TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()

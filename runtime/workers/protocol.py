"""What the API process and an engine process say to each other: JSON objects, one a line, over a socket pair.

Both sides are ours and start together, so there is no version. A closed socket means that the other side is gone.
This module knows framing and spelling; it does not know HTTP, torch or the engine.

API to engine: `generate` (job, request), `cancel` (job), `set_arm` (call, schedules), `arm` (call), `counters` (call).
Engine to API: `ready` (facts), `step` (job, fields of one step), `ended` (job), `failed` (job, message),
`reply` (call, value) or `refused` (call, message), `fatal` (message).
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]
_CHUNK_BYTES = 1 << 16


class PeerGone(Exception):
    """The process at the other end has closed its socket or died."""


def encode(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    message: Message = json.loads(line)
    return message


class Channel:
    """The engine's blocking end. `send` and `receive` may raise PeerGone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        try:
            with self._sending:
                self._connection.sendall(encode(message))
        except OSError as error:
            raise PeerGone from error

    def receive(self) -> Message:
        """Wait for the next message."""
        while (message := self._take()) is None:
            self._fill()
        return message

    def pending(self) -> Iterator[Message]:
        """The messages that have arrived already; never waits."""
        while True:
            message = self._take()
            if message is not None:
                yield message
            elif select.select([self._connection], [], [], 0)[0]:
                self._fill()
            else:
                return

    def _take(self) -> Message | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return decode(line)

    def _fill(self) -> None:
        try:
            data = self._connection.recv(_CHUNK_BYTES)
        except OSError as error:
            raise PeerGone from error
        if not data:
            raise PeerGone
        self._buffer += data

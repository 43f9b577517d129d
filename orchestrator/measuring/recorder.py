"""The recording half of the measuring client: a process that sends one request and stamps every `recv`.

It looks at HTTP framing (to know where a response ends) and at nothing else: no JSON, no events, no headers but the
two that frame a body. What it received goes to the parent with its stamps after the response has ended. It imports the
standard library only and is run by path (`python -I -S recorder.py REQUEST_FD CPUS`), so it starts in milliseconds and
carries no other thread, no logging and, once frozen, no garbage collection. CPUS is a list with commas, or empty.

Parent to child: the request's bytes at the start of REQUEST_FD, then on stdin a JSON line {host, port, timeout_s,
keep_alive, size_bytes}.
Child to parent, on stdout: a JSON line {send_ns, end_ns, outcome, message, listening, stamps, sizes}, then the bytes.
`outcome` is complete, closed, reset, stall, refused or framing.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

_RECV_BYTES = 1 << 16  # below malloc's threshold for mappings: 256 KiB cost 30 us more for each recv
_TICK_S = 1.0  # how often silence looks for a dead parent
_PROBES = 4  # connections tried after a lost response, to tell a dead server from a dropped connection
_PROBE_PAUSE_S = 0.05


class Framing:
    """Finds the end of one HTTP/1.1 response in a growing buffer (RFC 9112, section 6). ValueError where it cannot."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.until_close = False
        self.reusable = True
        self._at = 0  # start of the part that is still to be framed
        self._step: Callable[[Framing], bool] = Framing._head  # unbound: a bound one would be a reference cycle

    def feed(self, data: bytes) -> bool:
        """Take what one recv brought; True once the response is complete."""
        self.buffer += data
        while True:
            before = self._at
            if self._step(self):
                self.reusable = self.reusable and self._at == len(self.buffer)
                return True
            if self._at == before or self._at > len(self.buffer):
                return False

    def _head(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n", self._at)
        if end < 0:
            return False
        status_line, *lines = bytes(self.buffer[self._at : end]).split(b"\r\n")
        self._at = end + 4
        status = int(status_line.split(b" ", 2)[1])
        if 100 <= status < 200:
            return False
        headers = {name.strip().lower(): value.strip().lower() for name, _, value in (s.partition(b":") for s in lines)}
        self.reusable = status_line.startswith(b"HTTP/1.1") and headers.get(b"connection") != b"close"
        return self._body(status, headers)

    def _body(self, status: int, headers: dict[bytes, bytes]) -> bool:
        if status in (204, 304):
            return True
        if headers.get(b"transfer-encoding", b"").endswith(b"chunked"):
            self._step = Framing._chunk
        elif b"content-length" in headers:
            self._at += int(headers[b"content-length"])
            self._step = Framing._length
            return self._length()
        else:
            self._step = Framing._close
            self.until_close, self.reusable = True, False
        return False

    def _chunk(self) -> bool:
        end = self.buffer.find(b"\r\n", self._at)
        if end < 0:
            return False
        size_bytes = int(bytes(self.buffer[self._at : end]).split(b";")[0], 16)
        if size_bytes == 0:
            self._step = Framing._trailer
            self._at = end  # the trailer starts with the end of this line, so that an empty one ends in CRLF CRLF too
            return self._trailer()
        self._at = end + 2 + size_bytes + 2
        return False

    def _trailer(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n", self._at)
        if end >= 0:
            self._at = end + 4
        return end >= 0

    def _length(self) -> bool:
        return len(self.buffer) >= self._at

    def _close(self) -> bool:
        return False


class Recorder:
    """One connection at a time to one server, kept between requests where both sides allow it."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._peer: tuple[str, int] | None = None

    def run(self, order: dict[str, Any], request: bytes) -> tuple[dict[str, Any], bytearray]:
        peer = (order["host"], order["port"])
        framing = Framing()
        stamps: list[int] = []
        sizes: list[int] = []
        send_ns = time.monotonic_ns()
        try:
            connection = self._connect(peer, order["timeout_s"])
            send_ns = time.monotonic_ns()
            outcome, message = _converse(connection, request, order["timeout_s"], framing, stamps, sizes)
        except OSError as error:
            outcome, message = "refused", str(error)
        end_ns = stamps[-1] if stamps else time.monotonic_ns()
        if outcome != "complete" or not framing.reusable or not order["keep_alive"]:
            self._drop()
        lost = outcome in ("closed", "reset") and not framing.until_close
        report = {
            "send_ns": send_ns,
            "end_ns": end_ns,
            "outcome": outcome,
            "message": message,
            "listening": _listening(peer) if lost else outcome != "refused",
            "stamps": stamps,
            "sizes": sizes,
        }
        return report, framing.buffer

    def _connect(self, peer: tuple[str, int], timeout_s: float) -> socket.socket:
        if self._peer != peer or (self._socket is not None and _stale(self._socket)):
            self._drop()
        if self._socket is None:
            self._socket = socket.create_connection(peer, timeout=timeout_s)
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peer = peer
        tick = min(_TICK_S, timeout_s)
        timeval = struct.pack("ll", int(tick), int(tick % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeout_s) + 1, 0))
        return self._socket

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _converse(
    connection: socket.socket, request: bytes, timeout_s: float, framing: Framing, stamps: list[int], sizes: list[int]
) -> tuple[str, str]:
    """Send, then receive until the response ends. A refused upload may still have an answer to read."""
    now, recv = time.monotonic_ns, connection.recv
    unsent = ""
    try:
        connection.sendall(request)
    except OSError as error:
        unsent = str(error)
    heard_ns = now()
    while True:
        try:
            data = recv(_RECV_BYTES)
        except BlockingIOError:
            if now() - heard_ns >= timeout_s * 1e9:
                return "stall", f"silent for {timeout_s} s"
            _leave_without_parent()
            continue
        except OSError as error:
            return "reset", unsent or str(error)
        stamp_ns = now()
        if not data:
            return "closed", unsent
        stamps.append(stamp_ns)
        sizes.append(len(data))
        if not _only_ping(data):
            heard_ns = stamp_ns
        elif stamp_ns - heard_ns >= timeout_s * 1e9:
            return "stall", f"nothing but pings for {timeout_s} s"
        try:
            if framing.feed(data):
                return "complete", ""
        except (ValueError, IndexError) as error:
            return "framing", str(error)


def _only_ping(data: bytes) -> bool:
    """Whether a recv brought comment lines and no event: a server that only pings is as silent as one that does not."""
    return (data.startswith(b":") or b"\n:" in data) and b"data" not in data


def _stale(connection: socket.socket) -> bool:
    """Whether an idle connection was closed by the server (or holds bytes that belong to no request)."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) is not None
    except BlockingIOError:
        return False
    except OSError:
        return True


def _listening(peer: tuple[str, int]) -> bool:
    """Whether the server still accepts: asked several times, since a dying process closes its sockets one by one."""
    for _ in range(_PROBES):
        time.sleep(_PROBE_PAUSE_S)
        try:
            socket.create_connection(peer, timeout=1.0).close()
        except OSError:
            return False
    return True


def _leave_without_parent() -> None:
    if os.getppid() != _PARENT:
        os._exit(0)


def serve(request_fd: int, orders: BinaryIO, reports: BinaryIO) -> None:
    """Answer orders until stdin ends."""
    recorder = Recorder()
    while line := orders.readline():
        order = json.loads(line)
        report, received = recorder.run(order, os.pread(request_fd, order["size_bytes"], 0))
        reports.write(json.dumps(report | {"size_bytes": len(received)}).encode() + b"\n")
        reports.write(received)
        reports.flush()


_PARENT = os.getppid()

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; ctrl-C reaches the whole process group
    if sys.argv[2]:
        os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[2].split(",")})
    gc.freeze()
    gc.disable()
    serve(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)

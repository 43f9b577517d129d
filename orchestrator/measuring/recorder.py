"""The recording half of the measuring client: a process that sends one request and stamps every `recv` twice.

The kernel's stamp (SO_TIMESTAMPNS) says when the bytes arrived, ours when this process had them; on a busy host the two
are far apart. Which one counts is decided later (`arrivals`).

It looks at HTTP framing (to know where a response ends) and at nothing else: no JSON, no events, no headers but the
two that frame a body. What it received goes to the parent with its stamps after the response has ended. It imports the
standard library only (`python -I -S`, see `client`), so it starts in milliseconds and carries no other thread, no
logging and, once frozen, no garbage collection.

Parent to child: the request's bytes at the start of a file, then on stdin a JSON line {host, port, tls, proxy,
timeout_s, keep_alive, size_bytes}.
Child to parent, on stdout: a JSON line {send_ns, end_ns, outcome, message, listening, stamps, kernel, clocks, sizes},
then the bytes. `outcome` is complete, closed, reset, stall, refused or framing; `clocks` are readings of both clocks
before and after the request.
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
from collections.abc import Sequence
from typing import Any, BinaryIO

from orchestrator.measuring.connection import RECV_BYTES, SO_TIMESTAMPNS, Connection, Peer, opened
from orchestrator.measuring.framing import Framing

_PROBES = 4  # connections tried after a lost response, to tell a dead server from a dropped connection
_PROBE_PAUSE_S = 0.05
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_READINGS = 5


class Arrived:
    """What every `recv` of one response brought, and when; and when its request left."""

    def __init__(self) -> None:
        self.framing = Framing()
        self.send_ns = time.monotonic_ns()
        self.stamps: list[int] = []
        self.kernel: list[int] = []
        self.sizes: list[int] = []


class Recorder:
    """One connection for each server, kept between requests where the order and the server allow it."""

    def __init__(self) -> None:
        self._kept: dict[Peer, Connection] = {}
        # The kernel stamps packets while some socket asks for it, and is slow to begin: this one asks all the time.
        self._asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._asking.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def run(self, order: dict[str, Any], request: bytes) -> tuple[dict[str, Any], bytearray]:
        peer: Peer = (order["host"], order["port"], order["tls"], order["proxy"])
        connection, arrived = None, Arrived()
        clocks = [_clocks()]
        try:
            kept = self._live(peer, order)
            connection = kept or Connection(peer, order["timeout_s"])
            outcome, message = _converse(connection, request, order["timeout_s"], arrived)
            if kept and outcome in ("closed", "reset") and not arrived.stamps:
                # The server ended an idle connection while our request was on its way (RFC 9112, 9.3.1): nothing of it
                # was answered, so it is sent once more, and its clock starts anew.
                kept.socket.close()
                connection = Connection(peer, order["timeout_s"])
                outcome, message = _converse(connection, request, order["timeout_s"], arrived)
        except OSError as error:
            outcome, message = "refused", str(error)
        end_ns = arrived.stamps[-1] if arrived.stamps else time.monotonic_ns()
        clocks.append(_clocks())
        self._keep(peer, connection, outcome == "complete" and arrived.framing.reusable and order["keep_alive"])
        lost = outcome in ("closed", "reset") and not arrived.framing.until_close
        report = {
            "send_ns": arrived.send_ns,
            "end_ns": end_ns,
            "outcome": outcome,
            "message": message,
            "listening": _listening(peer) if lost else outcome != "refused",
            "stamps": arrived.stamps,
            "kernel": arrived.kernel,
            "clocks": clocks,
            "sizes": arrived.sizes,
        }
        return report, arrived.framing.buffer

    def _live(self, peer: Peer, order: dict[str, Any]) -> Connection | None:
        """The connection kept for this peer, if the order allows one and the server has not closed it."""
        connection = self._kept.pop(peer, None)
        if connection is not None and (not order["keep_alive"] or connection.stale()):
            connection.socket.close()
            connection = None
        return connection

    def _keep(self, peer: Peer, connection: Connection | None, reusable: bool) -> None:
        if connection is not None and reusable:
            self._kept[peer] = connection
        elif connection is not None:
            connection.socket.close()


def _converse(connection: Connection, request: bytes, timeout_s: float, arrived: Arrived) -> tuple[str, str]:
    """Send, then receive until the response ends. A refused upload may still have an answer to read."""
    connection.expect(timeout_s)
    now, receive, set_option = time.monotonic_ns, connection.socket.recvmsg, connection.socket.setsockopt
    feed, plain = arrived.framing.feed, connection.plain
    unsent = ""
    arrived.send_ns = now()
    try:
        connection.send(request)
    except OSError as error:
        unsent = str(error)
    heard_ns = now()
    while True:
        try:
            # An acknowledgement that waits for company keeps the next chunk of a server with Nagle's algorithm waiting.
            set_option(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            data, ancillary, _, _ = receive(RECV_BYTES, _ANCILLARY_BYTES)
            stamp_ns = now()
        except BlockingIOError:
            if now() - heard_ns >= timeout_s * 1e9:
                return "stall", f"silent for {timeout_s} s"
            _leave_without_parent()
            continue
        except OSError as error:
            return "reset", unsent or str(error)
        try:
            closed = not data
            data = plain(data) if data else data
        except OSError as error:
            return "reset", str(error)
        if closed:
            return "closed", unsent
        if not data:
            continue
        arrived.stamps.append(stamp_ns)
        arrived.kernel.append(_kernel_ns(ancillary))
        arrived.sizes.append(len(data))
        if not _only_ping(data):
            heard_ns = stamp_ns
        elif stamp_ns - heard_ns >= timeout_s * 1e9:
            return "stall", f"nothing but pings for {timeout_s} s"
        try:
            if feed(data):
                return "complete", ""
        except (ValueError, IndexError) as error:
            return "framing", str(error)


def _kernel_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """CLOCK_REALTIME of the arrival of the last segment that a recv took from; 0 where the kernel did not say."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return 0


def _clocks() -> tuple[int, int]:
    """CLOCK_MONOTONIC and CLOCK_REALTIME at one moment: of some readings the one that was least interrupted."""
    readings = ((time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(_READINGS))
    before, real_ns, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return (before + after) // 2, real_ns


def _only_ping(data: bytes) -> bool:
    """Whether a recv brought comment lines and no event: a server that only pings is as silent as one that does not."""
    return (data.startswith(b":") or b"\n:" in data) and b"data" not in data


def _listening(peer: Peer) -> bool:
    """Whether the server still accepts: asked several times, since a dying process closes its sockets one by one."""
    for _ in range(_PROBES):
        time.sleep(_PROBE_PAUSE_S)
        try:
            opened(peer, 1.0).close()
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


def main(request_fd: int, cpus: str) -> None:
    """`cpus` is a list with commas, or empty."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; ctrl-C reaches the whole process group
    if cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    gc.freeze()
    gc.disable()
    try:
        serve(request_fd, sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(0)  # the parent is gone: nobody is left to be told


_PARENT = os.getppid()

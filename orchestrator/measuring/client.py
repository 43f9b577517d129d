"""The measuring client: sends one request at a time and says when each event of the answer arrived.

A child process (`recorder`) owns the socket, so neither this process's threads nor its garbage collector can delay a
stamp. `record` only moves bytes; parsing (`exchange.parse`) can wait until both requests of a pair are over. Knows
nothing of models, arms or campaigns.

`sched_ns` is taken when the caller asks, `send_ns` just before the first byte leaves on an open connection, so the
time to connect lies between the two and not in TTFT. Measured figures are in docs/performance.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from campaigns.errors import HelperLost, UsageError
from orchestrator.checkouts.places import ROOT
from orchestrator.measuring.connection import Peer
from orchestrator.measuring.exchange import Event, Exchange, Recording, parse

__all__ = ["Call", "Client", "Event", "Exchange", "Recording", "parse"]

# With -I -S nothing but the standard library is on the path: the package is put there, and no site is read.
_RECORDER = """
import sys
sys.path.append(sys.argv[3])
from orchestrator.measuring.recorder import main
main(int(sys.argv[1]), sys.argv[2])
"""
_END_WAIT_S = 5.0
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Call:
    """One POST. `timeout_s` is the longest silence on the stream; pings do not break it."""

    base_url: str
    path: str
    body: bytes
    timeout_s: float
    keep_alive: bool = False  # else a fresh connection, opened before the request's clock starts
    headers: tuple[tuple[str, str], ...] = ()
    proxy: str = ""  # http://HOST:PORT to tunnel through

    @property
    def peer(self) -> Peer:
        parts = urlsplit(self.base_url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise UsageError(f"base URL {self.base_url!r}: write http://HOST:PORT or https://HOST:PORT")
        return parts.hostname, parts.port or _PORTS[parts.scheme], parts.scheme == "https", urlsplit(self.proxy).netloc

    def head(self) -> bytes:
        host, port, *_ = self.peer
        fields = [
            ("Host", f"{host}:{port}"),
            ("User-Agent", "dflash2-campaigns"),
            ("Accept", "text/event-stream"),
            ("Accept-Encoding", "identity"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(self.body))),
            ("Connection", "keep-alive" if self.keep_alive else "close"),
            *self.headers,
        ]
        target = urlsplit(self.base_url).path.rstrip("/") + self.path
        return "\r\n".join(
            [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields), "", ""]
        ).encode()


class Client:
    """Owns the recording process. `cpus` pins it, away from the server's."""

    def __init__(self, cpus: Collection[int] = ()) -> None:
        self.cpus = tuple(cpus)  # as they are when the process starts
        self._child: subprocess.Popen[bytes] | None = None
        self._request_fd = -1  # a file in memory that both processes see: 2 MB of prompt do not go through a pipe

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, call: Call) -> Exchange:
        return parse(self.record(call))

    def record(self, call: Call) -> Recording:
        sched_ns = time.monotonic_ns()
        try:
            report, received = self._ask(call)
        except BaseException:
            self.close()  # the pipe may hold half an answer: the next request gets a new child
            raise
        return Recording(
            sched_ns=sched_ns,
            send_ns=report["send_ns"],
            end_ns=report["end_ns"],
            outcome=report["outcome"],
            message=report["message"],
            listening=report["listening"],
            stamps=tuple(report["stamps"]),
            kernel=tuple(report["kernel"]),
            clocks=tuple((monotonic_ns, real_ns) for monotonic_ns, real_ns in report["clocks"]),
            sizes=tuple(report["sizes"]),
            received=received,
        )

    def abort(self) -> None:
        """From any thread: a request in flight ends as one whose recording process is lost."""
        if (child := self._child) is not None:
            child.kill()

    def close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        os.close(self._request_fd)
        child.kill()
        child.communicate(timeout=_END_WAIT_S)  # closes both pipes, also where one is broken with an order in it

    def _start(self) -> subprocess.Popen[bytes]:
        self._request_fd = os.memfd_create("request")
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _RECORDER,
            self._request_fd,
            ",".join(map(str, sorted(self.cpus))),
            ROOT,
        ]
        self._child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._request_fd,),
        )
        return self._child

    def _ask(self, call: Call) -> tuple[dict[str, Any], bytes]:
        child = self._child or self._start()
        assert child.stdin is not None and child.stdout is not None
        request = call.head() + call.body
        host, port, tls, proxy = call.peer
        order = {
            "host": host,
            "port": port,
            "tls": tls,
            "proxy": proxy,
            "timeout_s": call.timeout_s,
            "keep_alive": call.keep_alive,
            "size_bytes": len(request),
        }
        os.pwrite(self._request_fd, request, 0)
        try:
            child.stdin.write(json.dumps(order).encode() + b"\n")
            child.stdin.flush()
            line = child.stdout.readline()
            report = json.loads(line)
            received = child.stdout.read(report["size_bytes"])
        except (OSError, ValueError) as error:  # a broken pipe, or a line that was never written to its end
            raise _lost(child) from error
        if len(received) != report["size_bytes"]:
            raise _lost(child)
        return report, received


def _lost(child: subprocess.Popen[bytes]) -> HelperLost:
    try:
        how = f"ended with code {child.wait(_END_WAIT_S)}"
    except subprocess.TimeoutExpired:
        how = "no longer speaks"
    return HelperLost(f"the recording process {how}: what it saw of the running request is lost")

"""A server that sends exactly the bytes of a script, over real sockets, and the measuring client beside it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from campaigns.plan import PairKey, Phase, Role
from campaigns.records import Request
from orchestrator.measuring.client import Call, Client, Exchange
from orchestrator.measuring.observe import Context, observe
from orchestrator.measuring.stream import Reply, read
from orchestrator.preparation import schedules
from orchestrator.scoring.sandbox import Sandbox


@pytest.fixture(scope="session", autouse=True)
def kernels_listed_once() -> Iterator[None]:
    """Every campaign that is composed asks another process for the same list: here the first of them does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "listing", cache(schedules.listing))
        yield


@pytest.fixture(scope="module", autouse=True)
def fresh_stores(fresh_stores_remembered: None) -> None:
    pass


@pytest.fixture(scope="session")
def box() -> Sandbox:
    """Skips only where the kernel refuses: a sandbox in which nothing runs any more has to fail its tests."""
    refusal = Sandbox().refusal()
    assert "does not pass inside" not in refusal, refusal
    if refusal:
        pytest.skip(refusal)
    return Sandbox()


CLOSE = "close"  # end the connection
RESET = "reset"  # end it rudely
DIE = "die"  # stop listening, then end the connection: a server process that is gone
PAUSE_S = 0.02  # and then until the client has read what was sent, however busy the host is

Script = Sequence[bytes | float | str | Callable[[], bytes]]


class ScriptedServer:
    """Plays one script per request; the last one again when they run out."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self.requests: list[tuple[str, dict[str, str], bytes]] = []  # (request line, headers, body)
        self.num_connections = 0
        self._stopping = threading.Event()
        self._connection = socket.socket()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for end in (self._listener, self._connection):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)
        self._connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            self._connection.close()
            self._connection = connection
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, contextlib.suppress(OSError):
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = connection.recv(1 << 16)
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            line, *fields = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
            pieces = [buffer]
            missing = int(headers.get("content-length", 0)) - len(buffer)
            while missing > 0:
                pieces.append(connection.recv(1 << 20))
                missing -= len(pieces[-1])
            self.requests.append((line, headers, b"".join(pieces)))
            buffer = b""
            if not self._play(connection, self._scripts[min(len(self.requests), len(self._scripts)) - 1]):
                return

    def _play(self, connection: socket.socket, script: Script) -> bool:
        for action in script:
            if callable(action):
                action = action()
            if isinstance(action, bytes):
                connection.sendall(action)
            elif isinstance(action, float):
                if self._stopping.wait(action):
                    return False
                if action == PAUSE_S:
                    _await_read(connection)
            else:
                return self._end(connection, action)
        return True

    def _end(self, connection: socket.socket, how: str) -> bool:
        if how == DIE:
            self._listener.close()
        if how == RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return False


def _await_read(connection: socket.socket) -> None:
    """Until the peer's receive queue is empty: only then does the next event come in a recv of its own."""
    ends = f":{connection.getpeername()[1]:04X}", f":{connection.getsockname()[1]:04X}"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        fields = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        queues = [field[4] for field in fields if field[1].endswith(ends[0]) and field[2].endswith(ends[1])]
        if all(queue.endswith(":00000000") for queue in queues):
            return
        time.sleep(0.001)


@dataclass(frozen=True)
class Measured:
    exchange: Exchange
    reply: Reply
    request: Request


class Wire:
    """How tests write answers. Each method returns bytes; `play` runs a request against a script."""

    CLOSE, RESET, DIE, PAUSE_S = CLOSE, RESET, DIE, PAUSE_S
    HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    HEAD_UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    END = b"0\r\n\r\n"

    def __init__(self, client: Client, serve: Callable[..., ScriptedServer]) -> None:
        self.client = client
        self.serve = serve

    @staticmethod
    def chunk(data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data)

    @staticmethod
    def event(value: Any, end: bytes = b"\n\n", prefix: bytes = b"data: ") -> bytes:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return prefix + text.encode() + end

    @staticmethod
    def text(text: str, ids: Sequence[int] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
        """A chunk of /v1/completions."""
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish}
        if ids is not None:
            choice["token_ids"] = list(ids)
        return {"choices": [choice | fields]}

    @staticmethod
    def delta(ids: Sequence[int] | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
        """A chunk of /v1/chat/completions."""
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
        if ids is not None:
            choice["token_ids"] = list(ids)
        return {"choices": [choice]}

    @staticmethod
    def usage(completion: int, prompt: int = 3, cached: int | None = 0, **fields: Any) -> dict[str, Any]:
        details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return {"choices": [], "usage": usage | details} | fields

    def stream(self, *values: Any, done: bool = True) -> list[bytes | float | str]:
        """A script that sends each value as an event of its own recv, in chunked framing."""
        script: list[bytes | float | str] = [self.HEAD]
        for value in values:
            script += [PAUSE_S, self.chunk(self.event(value))]
        return [*script, PAUSE_S, (self.chunk(self.event("[DONE]")) if done else b"") + self.END]

    def play(self, *script: bytes | float | str, **call: Any) -> Measured:
        return self.ask(self.serve(script), **call)

    @staticmethod
    def context(counters: Mapping[str, int]) -> Context:
        key = PairKey(startup=0, fixture="sum", seed=1, repeat=0)
        return Context("c0ffee", 0, 0, key, 0, Role.CONTROL, "default", Phase.MEASURE, 7, 0, 256, counters)

    def ask(self, server: ScriptedServer, counters: Mapping[str, int] | None = None, **call: Any) -> Measured:
        fields = {"path": "/v1/completions", "body": b"{}", "timeout_s": 10.0} | call
        exchange = self.client.call(Call(base_url=server.url, **fields))
        reply = read(exchange.events)
        return Measured(exchange, reply, observe(exchange, reply, self.context(counters or {})))


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    """Start scripted servers that end with the test."""
    servers: list[ScriptedServer] = []

    def start(*scripts: Script) -> ScriptedServer:
        servers.append(ScriptedServer(*scripts))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def wire(client: Client, serve: Callable[..., ScriptedServer]) -> Wire:
    return Wire(client, serve)

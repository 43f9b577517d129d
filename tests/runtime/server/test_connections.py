"""A real server against connections that hold it: slow ones, many, foreign pages, two framings, large bodies.

curl asks where its own framing will do; the loops that send a byte now and then do what slowhttptest does.
"""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

PLAIN = "/v1/completions"
ANSWER = {"prompt": "a", "max_tokens": 6, "temperature": 0, "return_token_ids": True}
HEADER = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def held(serving: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    limits = ("--header-timeout=1", "--body-timeout=1.5", "--max-connections=24", "--allowed-host=gpu.example")
    with serving(tmp_path_factory.mktemp("held"), *limits, "--max-model-len=1024") as live:
        yield live


def curl(server: Any, *words: str, path: str = "/health") -> tuple[int, str]:
    url = f"http://127.0.0.1:{server.port}{path}"
    command = ["curl", "-s", "--max-time", "60", "-w", "\n%{http_code}", *words, url]
    body, _, status = subprocess.run(command, capture_output=True, text=True).stdout.rpartition("\n")
    return int(status), body


def dial(server: Any) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def all_of(connection: socket.socket) -> bytes:
    """Until the server ends the connection; fails by the socket's own time-out."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def drip(server: Any, begun: bytes, rest: bytes) -> bytes:
    """A byte every fifth of a second, for as long as the server takes them, and what it said to that."""
    with dial(server) as connection:
        connection.sendall(begun)
        with contextlib.suppress(ConnectionError):
            for byte in rest:
                time.sleep(0.2)
                connection.sendall(bytes([byte]))
        return all_of(connection)


def test_a_header_or_body_that_does_not_come_is_given_up(held: Any) -> None:
    whole, chunked = HEADER + b"Content-Length: 99\r\n\r\n", HEADER + b"Transfer-Encoding: chunked\r\n\r\n"
    begun = [(b"", HEADER + b"X: x"), (whole, b"{" * 30), (chunked, b"1\r\n{\r\n" * 5), (HEADER[:9], b""), (b"", b"")]
    with ThreadPoolExecutor(len(begun)) as pool:
        answers = list(pool.map(lambda parts: drip(held, *parts), begun))
    told = [b"header did not arrive within 1 s", b"body did not arrive within 1.5 s"]
    assert [[words in answer for words in told] for answer in answers[:4]] == [[1, 0], [0, 1], [0, 1], [1, 0]]
    assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers[:4]) and answers[4] == b""
    assert held.ask("POST", PLAIN, ANSWER).status == 200


def test_connections_are_bounded_and_given_back(held: Any) -> None:
    while (found := idle_connections(held)) is None:  # a busy machine was slower than the header's second
        time.sleep(1)
    assert found == ([False] * 24, [True] * 16)
    assert held.ask("GET", "/health").status == 200


def idle_connections(server: Any) -> tuple[list[bool], list[bool]] | None:
    """Of the first 24 and of 16 more, which were refused; None where the first may have been given up meanwhile."""
    with contextlib.ExitStack() as stack:
        begun = time.monotonic()
        idle = [stack.enter_context(dial(server)) for _ in range(40)]
        more = [b" 503 " in all_of(connection)[:16] for connection in idle[24:]]
        told, _, _ = select.select(idle[:24], [], [], 0)
        return ([one in told for one in idle[:24]], more) if time.monotonic() - begun < 1 else None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Host: evil.example",), 421),
        (("Host: 127.0.0.1.evil.example:8000",), 421),
        (("Host: localhost@evil.example",), 421),
        (("Host: localhost:1",), 200),  # a forwarded port
        (("Host: LOCALHOST.",), 200),
        (("Host: [::1]:8000",), 200),
        (("Host: gpu.example:80",), 200),
        (("Origin: http://evil.example",), 403),
        (("Origin: null",), 403),
        (("Host: localhost:5", "Origin: http://localhost:5"), 200),
        (("Host: localhost:5", "Origin: http://localhost:6"), 403),
    ],
)
def test_other_names_and_pages_of_others_are_refused(held: Any, headers: tuple[str, ...], status: int) -> None:
    found, body = curl(held, *(word for header in headers for word in ("-H", header)))
    assert found == status
    assert status == 200 or json.loads(body)["error"]["message"]


def test_a_body_is_framed_once(held: Any) -> None:
    words = ("-H", "Content-Length: 4", "-H", "Transfer-Encoding: chunked", "-d", json.dumps(ANSWER))
    status, body = curl(held, *words, path=PLAIN)
    assert status == 400 and "exclude each other" in body
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with dial(held) as connection:
        connection.sendall(HEADER + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1, "nothing behind it is answered"


def resident_mib(server: Any) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


def test_memory_of_large_bodies_is_given_back(held: Any) -> None:
    before = resident_mib(held)
    body = json.dumps({"prompt": "hello world " * 50_000}).encode()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(held.ask, "POST", "/tokenize", body) for _ in range(4)]
    assert {each.result().status for each in asked} == {200}
    deadline = time.monotonic() + 60
    while resident_mib(held) > before + 40 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert resident_mib(held) <= before + 40


def test_an_error_in_one_request_is_its_own(held: Any) -> None:
    """The engine's process is given no more memory: torch cannot allocate, says so, and the next request is right."""
    [worker] = held.worker_pids
    before = held.ask("POST", PLAIN, ANSWER).json["choices"][0]["token_ids"]
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[0])
    long = {**ANSWER, "prompt": "b c d e " * 200, "max_tokens": 2}
    unlimited = resource.prlimit(worker, resource.RLIMIT_AS)
    resource.prlimit(worker, resource.RLIMIT_AS, (pages * resource.getpagesize(), unlimited[1]))
    try:
        reply = held.ask("POST", PLAIN, long)
        events = [json.loads(data) for data in held.events(PLAIN, **long) if data != "[DONE]"]
    finally:
        resource.prlimit(worker, resource.RLIMIT_AS, unlimited)
    assert reply.status == 500 and "can't allocate memory" in reply.json["error"]["message"]
    assert "can't allocate memory" in events[-1]["error"]["message"]
    assert held.ask("POST", PLAIN, ANSWER).json["choices"][0]["token_ids"] == before
    assert held.ask("POST", PLAIN, long).status == 200 and held.worker_pids == [worker]

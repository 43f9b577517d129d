"""A server whose truth is known: it sends scripted chunks at scripted times and says when it sent each of them.

It generates nothing, so whatever a client reports beyond these times is the client's own. Each chunk is one token; the
stamp is CLOCK_MONOTONIC just before its `send`. `max_tokens` sets the number of chunks, `--interval-us` their distance
unless the request carries `interval_us`. Standard library only, run by path; it ends with its stdin.

A request may ask for the `manner` of a real server: `nagle` (TCP_NODELAY was never set), `coalescing` (two chunks a
write behind the first) or `fragments` (as a proxy of TLS cuts: a write ends inside a chunk). A chunk's stamp is that of
the write that completes it.

    python nullserver.py [--port 0] [--interval-us 4000] [--manner nagle]      prints its port, then serves

`GET /truth` answers {"requests": [{"arrival_ns": ns, "chunks_ns": [ns, …]}, …]}, oldest first: when each streamed
request had been read, and when each of its chunks was sent.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import sys
import threading
import time
from itertools import pairwise
from typing import Any

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_MODEL = "null"
_LEAD_S = 0.002  # between the head and the first chunk, so that they never share a recv
_WORD = " a"  # one token of text per chunk for clients that count text


class NullServer:
    def __init__(self, port: int, interval_us: int, manner: str) -> None:
        self._interval_us, self._manner = interval_us, manner
        self._truth: list[dict[str, Any]] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            try:
                while line := reader.readline():
                    headers = {}
                    while (field := reader.readline().strip()) != b"":
                        name, _, value = field.partition(b":")
                        headers[name.strip().lower()] = value.strip()
                    body = reader.read(int(headers.get(b"content-length", b"0")))
                    self._answer(connection, line.split(b" ")[1].decode(), body, time.monotonic_ns())
            except OSError:
                return

    def _answer(self, connection: socket.socket, path: str, body: bytes, arrival_ns: int) -> None:
        if path in ("/v1/completions", "/v1/chat/completions"):
            self._stream(connection, path, json.loads(body), arrival_ns)
        elif path == "/truth":
            connection.sendall(_plain(200, {"requests": self._truth}))
        elif path == "/v1/models":
            connection.sendall(_plain(200, {"object": "list", "data": [{"id": _MODEL, "object": "model"}]}))
        elif path == "/health":
            connection.sendall(_plain(200, {}))
        else:
            connection.sendall(_plain(404, {"error": {"message": f"no route {path}", "code": 404}}))

    def _stream(self, connection: socket.socket, path: str, asked: dict[str, Any], arrival_ns: int) -> None:
        num_chunks = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
        interval_ns = 1000 * int(asked.get("interval_us", self._interval_us))
        chunks = [_framed(event) for event in _events(path.endswith("chat/completions"), num_chunks)]
        end = b"".join(_framed(event) for event in _ending(asked, num_chunks)) + _framed("[DONE]") + b"0\r\n\r\n"
        manner = asked.get("manner", self._manner)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, manner != "nagle")
        connection.sendall(_HEAD)
        time.sleep(_LEAD_S)
        writes = _writes(chunks, manner)
        self._truth.append({"arrival_ns": arrival_ns, "chunks_ns": _paced(connection, writes, interval_ns)})
        connection.sendall(end)


def _writes(chunks: list[bytes], manner: str) -> list[tuple[bytes, int]]:
    """What is written at once, and how many chunks it completes."""
    if manner == "coalescing":
        pairs = [chunks[i : i + 2] for i in range(1, len(chunks), 2)]
        return [(chunks[0], 1), *((b"".join(pair), len(pair)) for pair in pairs)]
    if manner == "fragments":
        halves = [(chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :]) for chunk in chunks]
        across = [(end + begin, 1) for (_, end), (begin, _) in pairwise(halves)]
        return [(halves[0][0], 0), *across, (halves[-1][1], 1)]
    return [(chunk, 1) for chunk in chunks]


def _paced(connection: socket.socket, writes: list[tuple[bytes, int]], interval_ns: int) -> list[int]:
    """Make each write when it is due; the time at which each chunk was really complete."""
    now, send, sleep = time.monotonic_ns, connection.sendall, time.sleep
    stamps = []
    due_ns = now()
    for data, num_completed in writes:
        wait_ns = due_ns - now()
        if wait_ns > 0:
            sleep(wait_ns * 1e-9)
        stamps += [now()] * num_completed
        send(data)
        due_ns += interval_ns
    return stamps


def _events(chat: bool, num_chunks: int) -> list[dict[str, Any]]:
    return [_content(chat, i, "length" if i == num_chunks - 1 else None) for i in range(num_chunks)]


def _content(chat: bool, index: int, finish_reason: str | None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason, "token_ids": [index]}
    choice |= {"delta": {"role": "assistant", "content": _WORD}} if chat else {"text": _WORD}
    return _chunk(chat, [choice])


def _chunk(chat: bool, choices: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": "null-0", "object": kind, "created": 0, "model": _MODEL, "choices": choices, **fields}


def _ending(asked: dict[str, Any], num_chunks: int) -> list[dict[str, Any]]:
    if not (asked.get("stream_options") or {}).get("include_usage"):
        return []
    usage = {"prompt_tokens": 1, "completion_tokens": num_chunks, "total_tokens": num_chunks + 1}
    return [_chunk("messages" in asked, [], usage=usage)]


def _framed(event: dict[str, Any] | str) -> bytes:
    text = event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))
    data = f"data: {text}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def _plain(status: int, value: Any) -> bytes:
    body = json.dumps(value).encode()
    reason = {200: "OK", 404: "Not Found"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--interval-us", type=int, default=4000)
    parser.add_argument("--manner", default="", help="of requests that ask for none")
    options = parser.parse_args()
    server = NullServer(options.port, options.interval_us, options.manner)
    gc.freeze()
    gc.disable()
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        print(server.port, flush=True)
    except BrokenPipeError:
        os._exit(0)  # whoever started it is gone already
    sys.stdin.read()


if __name__ == "__main__":
    main()

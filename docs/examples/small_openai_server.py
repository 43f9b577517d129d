"""The smallest OpenAI-compatible server that a campaign can measure through `server=command`: a script to start from.

    python small_openai_server.py PORT [--width N] [--round-ms MS] [--no-ids] [--no-tokenize]

It answers with the same tokens for the same prompt and seed whatever its width (the tokens per chunk), which is what
lossless speculation promises. `--no-ids` and `--no-tokenize` leave out what many servers lack.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_CAPACITY = 512
_ANSWER_TOKENS = 33  # the prefill's and 32 more


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    options: argparse.Namespace

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": "small", "max_model_len": _CAPACITY}]})
        else:
            self._json(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path in ("/v1/completions", "/v1/chat/completions"):
            self._stream(body, "chat" in self.path)
        elif self.path == "/tokenize" and not self.options.no_tokenize:
            ids = _prompt_ids(body)
            self._json(200, {"tokens": ids, "count": len(ids), "max_model_len": _CAPACITY})
        else:
            self._json(404, {"error": {"message": f"no route {self.path}", "code": 404}})

    def _stream(self, body: dict[str, Any], chat: bool) -> None:
        ids = _answer_ids(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        starts = [0, *range(1, len(ids), self.options.width)]
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            time.sleep(self.options.round_ms / 1000)
            self._event(self._chunk(ids[start:end], chat, last=end == len(ids)))
        prompt = len(_prompt_ids(body))
        usage = {"prompt_tokens": prompt, "completion_tokens": len(ids), "total_tokens": prompt + len(ids)}
        self._event({"choices": [], "usage": usage | {"prompt_tokens_details": {"cached_tokens": 0}}})
        self._send(b"data: [DONE]\n\n")
        self._send(b"")

    def _chunk(self, ids: list[int], chat: bool, last: bool) -> dict[str, Any]:
        text = "".join(chr(ord("a") + i % 26) for i in ids)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop" if last else None}
        choice |= {"delta": {"content": text}} if chat else {"text": text}
        return {"choices": [choice if self.options.no_ids else choice | {"token_ids": ids}]}

    def _event(self, value: dict[str, Any]) -> None:
        self._send(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _json(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _prompt_ids(body: dict[str, Any]) -> list[int]:
    """One token per byte of what the model would see."""
    prompt = body.get("messages") or body.get("prompt")
    return prompt if isinstance(prompt, list) and isinstance(prompt[0], int) else list(json.dumps(prompt).encode())


def _answer_ids(body: dict[str, Any]) -> list[int]:
    digest = hashlib.sha256(json.dumps([_prompt_ids(body), body.get("seed")]).encode()).digest()
    return list(digest * 2)[: min(_ANSWER_TOKENS, body["max_tokens"])]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--round-ms", type=float, default=3.0)
    parser.add_argument("--no-ids", action="store_true")
    parser.add_argument("--no-tokenize", action="store_true")
    Handler.options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", Handler.options.port), Handler)
    print(f"serving on port {Handler.options.port}, a round every {Handler.options.round_ms:g} ms", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

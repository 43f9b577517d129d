"""A small OpenAI-style server for tests of the lease and the startup: the standard library, one thread per connection.

    small_server.py PORT [--slow-start S] [--exit CODE] [--stubborn] [--daemon FILE] [--die-after N] [--token-pause S]

--stubborn ignores TERM, in the server and in the daemon. --daemon starts a grandchild in a session of its own and
writes its PID to FILE. --die-after kills the server by KILL in the middle of its Nth answer. SMALL_SERVER_WORD in the
environment is the word that it answers with.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_DAEMON = (
    "import os, signal, sys, time\n"
    "if sys.argv[1] == 'stubborn': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "open(sys.argv[2] + '.new', 'w').write(str(os.getpid()))\n"
    "os.rename(sys.argv[2] + '.new', sys.argv[2])\n"
    "time.sleep(600)\n"
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    options: argparse.Namespace
    answers = 0

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._json({"data": [{"id": "small", "max_model_len": 128}]})
        else:
            self._json({}, 200 if self.path == "/health" else 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        if self.path == "/tokenize":
            self._json({"tokens": list(body["prompt"].encode()), "count": len(body["prompt"])})
        elif self.path == "/v1/completions":
            self._stream(body)
        else:
            self._json({}, 404)

    def _json(self, value: object, status: int = 200) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, body: dict) -> None:
        Handler.answers += 1
        word = os.environ.get("SMALL_SERVER_WORD", "tick")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = min(6, body["max_tokens"])
        for number in range(count):
            if number == 3 and Handler.answers == self.options.die_after:
                os.kill(os.getpid(), signal.SIGKILL)
            self._event({"choices": [{"text": word, "token_ids": [number]}]})
            time.sleep(self.options.token_pause)
        self._event({"choices": [{"text": "", "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 3, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": 0}}
        self._event({"choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, value: object) -> None:
        self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--slow-start", type=float, default=0.0)
    parser.add_argument("--exit", type=int)
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--daemon", default="")
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--token-pause", type=float, default=0.002)
    Handler.options = options = parser.parse_args()
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.daemon:
        manners = "stubborn" if options.stubborn else "polite"
        subprocess.run([sys.executable, "-I", "-S", "-c", _DAEMON, manners, options.daemon], check=True)
    print("weights are being read", flush=True)
    time.sleep(options.slow_start)
    if options.exit is not None:
        sys.exit(f"no such weights; leaving with {options.exit}") if options.exit == 1 else os._exit(options.exit)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.pause()


if __name__ == "__main__":
    main()

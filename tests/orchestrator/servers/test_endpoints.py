"""Endpoints as they are out there: behind a key, behind HTTPS, on a host whose environment names a proxy, or gone."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import ServerFailed, UsageError
from campaigns.plan import Arm, ServerPlan
from campaigns.provenance import canonical_json
from campaigns.records import Stamp
from orchestrator.launch import composed
from orchestrator.measuring.client import Call, Client
from orchestrator.measuring.stream import read
from orchestrator.servers.adapters import open_adapter
from orchestrator.servers.adapters.control import ask
from orchestrator.servers.keys import headers_of
from orchestrator.servers.serving import Ground, RunningServer, disclosed

KEY = "sk-tests-3141592"
ATTACH = (
    "server=attach",
    "campaign.mode=aa",
    "arm@campaign.control=default",
    "arm@campaign.candidate=default",
    "campaign.max_tokens=8",
)


class Handler(BaseHTTPRequestHandler):
    """Three chunks for whoever has the key."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say(b"{}", "application/json")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        events: list[Any] = [{"choices": [{"text": word, "token_ids": [i]}]} for i, word in enumerate("abc")]
        events.append({"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}})
        self._say(b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events), "text/event-stream")

    def _say(self, body: bytes, kind: str) -> None:
        allowed = self.headers.get("Authorization") == f"Bearer {KEY}" and self.headers.get("X-Team") == "kernels"
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def attached(url: str, folder: Path, proxy: str = "", **environment: str) -> RunningServer:
    plan = ServerPlan("attach", base_url=url, proxy=proxy, headers=(("X-Team", "kernels"),), api_key_env="TEAM_WORD")
    ground = Ground({"TEAM_WORD": KEY, **environment}, (), (), folder)
    return RunningServer(open_adapter("attach"), plan, (Arm("a"),), None, ground)


def measured(server: RunningServer, client: Client) -> tuple[str, int, Stamp]:
    exchange = client.call(
        Call(server.base_url, "/v1/completions", b"{}", 10.0, headers=server.headers, proxy=server.proxy)
    )
    return read(exchange.events).text, exchange.status or 0, exchange.stamp


def test_every_request_carries_the_headers_and_the_key(
    endpoint: ThreadingHTTPServer, tmp_path: Path, client: Client
) -> None:
    url = f"http://127.0.0.1:{endpoint.server_port}"
    assert ask(url, "GET", "/health")[0] == 401
    server = attached(url, tmp_path)
    server.await_ready()
    assert measured(server, client) == ("abc", 200, Stamp.KERNEL)


def test_a_proxy_of_the_environment_is_never_asked(
    endpoint: ThreadingHTTPServer, tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        server = attached(f"http://127.0.0.1:{endpoint.server_port}", tmp_path)
        server.await_ready()
        assert measured(server, client)[:2] == ("abc", 200)
        proxy.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            proxy.accept()


class Tunnels:
    """A proxy that opens tunnels, or answers with a status of its own, and keeps what it was asked for."""

    def __init__(self, refusal: bytes = b"") -> None:
        self.asked: list[str] = []
        self._refusal, self._listening = refusal, socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listening.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n") and (part := client.recv(1)):
            head += part
        self.asked.append(head.decode().splitlines()[0])
        host, _, port = self.asked[-1].split()[1].rpartition(":")
        with client:
            if self._refusal:
                client.sendall(b"HTTP/1.1 " + self._refusal + b"\r\n\r\n")
                return
            with socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pour, args=(server, client), daemon=True)
                back.start()
                _pour(client, server)
                back.join()


def _pour(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxies() -> Iterator[tuple[Tunnels, Tunnels]]:
    both = Tunnels(), Tunnels(b"403 Forbidden")
    yield both
    for each in both:
        each.close()


def test_a_proxy_that_was_asked_for_carries_every_request(
    endpoint: ThreadingHTTPServer, tmp_path: Path, client: Client, proxies: tuple[Tunnels, Tunnels]
) -> None:
    open_, closed = proxies
    server = attached(f"http://127.0.0.1:{endpoint.server_port}", tmp_path, open_.url)
    server.await_ready()
    assert measured(server, client) == ("abc", 200, Stamp.KERNEL) and not server.death()
    target = f"CONNECT 127.0.0.1:{endpoint.server_port} "
    assert len(open_.asked) >= 3 and all(line.startswith(target) for line in open_.asked)
    server = attached(f"http://localhost:{endpoint.server_port}", tmp_path, closed.url)
    assert "403" in server.death() and measured(server, client)[:2] == ("", 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["server.proxy=proxy:3128"], r"server\.proxy=proxy:3128: write http://HOST:PORT"),
        (["server.proxy=https://proxy:3128"], r"write http://HOST:PORT"),
        (["server.proxy=http://user:word@proxy:3128"], r"write http://HOST:PORT"),
        (["server=embedded", "server.proxy=http://p:1"], r"a server that is started here is reached directly"),
    ],
)
def test_a_proxy_that_is_none_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        composed([*ATTACH, "server.base_url=http://127.0.0.1:1", *words])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_https_is_measured_by_the_kernels_stamps_and_checked_by_certificates(
    endpoint: ThreadingHTTPServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    proxies: tuple[Tunnels, Tunnels],
) -> None:
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*made, "-keyout", tmp_path / "key", "-out", tmp_path / "cert"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
    server = attached(f"https://localhost:{endpoint.server_port}", tmp_path)
    with Client() as stranger:
        assert measured(server, stranger)[:2] == ("", 0)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
    server.await_ready()
    with Client() as client:
        assert measured(server, client) == ("abc", 200, Stamp.KERNEL)
        through = attached(f"https://localhost:{endpoint.server_port}", tmp_path, proxies[0].url)
        through.await_ready()
        assert measured(through, client) == ("abc", 200, Stamp.KERNEL) and proxies[0].asked


def test_the_key_is_in_no_plan_and_in_no_environment_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_WORD", KEY)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"server.base_url=http://127.0.0.1:{listening.getsockname()[1]}"
        prepared = composed([*ATTACH, url, "server.api_key_env=TEAM_WORD", "+server.headers.X-Team=kernels"])
    assert prepared.plan.server.headers == (("X-Team", "kernels"),)
    assert KEY not in prepared.config_json + canonical_json(dict(prepared.provenance)) + repr(prepared.plan)
    assert disclosed({"TEAM_WORD": KEY, "A": "b"}, "TEAM_WORD") == {"TEAM_WORD": "(not recorded)", "A": "b"}


@pytest.mark.parametrize("content", ["", "  \n", "two words", None])
def test_a_key_that_cannot_be_had_is_told(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    with pytest.raises(UsageError, match=r"server\.api_key_file") as told:
        headers_of(ServerPlan("attach", api_key_file=str(tmp_path / "key")), {})
    assert "two words" not in str(told.value)
    with pytest.raises(UsageError, match=r"server\.api_key_env=K: the variable"):
        headers_of(ServerPlan("attach", api_key_env="K"), {})


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("+server.headers.Authorization=x", "headers are stored: give a key by server.api_key_env=NAME"),
        ("+server.headers.'a b'=x", "cannot be read"),
        ("server.base_url=ftp://a", "write http://HOST:PORT or https://HOST:PORT"),
        (
            "server.base_url=http://me:word@127.0.0.1:80",
            "names a user for 127.0.0.1: a key comes by server.api_key_env",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused(word: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        composed([*ATTACH, "server.base_url=http://127.0.0.1:9", word])


def test_an_attached_server_that_is_gone_is_noticed_at_once_and_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = attached(f"http://127.0.0.1:{listening.getsockname()[1]}", tmp_path)
        assert server.death() == ""
    with pytest.raises(ServerFailed, match=rf"Nobody listens at {server.base_url} .* is gone") as told:
        server.await_ready()  # whose deadline is five minutes
    assert "server.log" not in str(told.value)

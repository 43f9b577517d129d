"""Endpoints as they are out there: behind a key, behind HTTPS, on a host whose environment names a proxy, or gone."""

from __future__ import annotations

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


def attached(url: str, folder: Path, **environment: str) -> RunningServer:
    plan = ServerPlan("attach", base_url=url, headers=(("X-Team", "kernels"),), api_key_env="TEAM_WORD")
    ground = Ground({"TEAM_WORD": KEY, **environment}, (), (), folder)
    return RunningServer(open_adapter("attach"), plan, (Arm("a"),), None, ground)


def measured(server: RunningServer, client: Client) -> tuple[str, int, Stamp]:
    exchange = client.call(Call(server.base_url, "/v1/completions", b"{}", 10.0, headers=server.headers))
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


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_https_is_measured_by_the_kernels_stamps_and_checked_by_certificates(
    endpoint: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

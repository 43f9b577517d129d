"""A real server process for the tests of its face: started once, spoken to over plain sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

ROOT = Path(__file__).resolve().parents[3]
CHECKPOINT = ROOT / "runtime/checkpoints/nano"
ORACLE = ROOT / "tests/runtime/oracles/qwen3_5.py"
PEERS = ROOT / "build/peers"
READY_SECONDS = 120


@dataclass
class Reply:
    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Stream:
    """What a stream said: its chunks in order, and whether it closed as promised."""

    chunks: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [chunk["choices"][0] for chunk in self.chunks if chunk.get("choices")]

    @property
    def token_ids(self) -> list[int]:
        return [token for choice in self.choices for token in choice.get("token_ids", [])]

    @property
    def last(self) -> dict[str, Any]:
        return self.chunks[-1]


class LiveServer:
    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, raw, headers)
            response = connection.getresponse()
            return Reply(response.status, response.read(), response.headers)

    def stream(self, path: str, **body: Any) -> Stream:
        found = Stream()
        for data in self.events(path, **body):
            if data == "[DONE]":
                found.done = True
            else:
                found.chunks.append(json.loads(data))
        return found

    def events(self, path: str, **body: Any) -> Iterator[str]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                if line.startswith(b"data: "):
                    yield line[6:].strip().decode()

    @property
    def worker_pids(self) -> list[int]:
        return [p["pid"] for p in self.ask("GET", "/campaign/identity").json["processes"] if p["role"] == "engine"]

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                if self.ask("GET", "/health").status == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(f"not ready: {self.log.read_text()}")


@contextlib.contextmanager
def serve(folder: Path, *options: str, model: Path = CHECKPOINT, wait: bool = True) -> Iterator[LiveServer]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "runtime.server", "--model", str(model), "--port", str(port), *options]
    log = folder / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
    server = LiveServer(process, port, log)
    try:
        if wait:
            server.wait_ready()
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Shared by every test that leaves it as it was: default arm, nothing running."""
    with serve(
        tmp_path_factory.mktemp("server"), "--max-waiting=2", "--max-body-bytes=100000", "--max-model-len=1024"
    ) as live:
        yield live


@pytest.fixture(scope="session")
def oracle_logits(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[int], list[int]], Tensor]:
    """`oracle_logits(prompt, answer)`: transformers' logits [len(answer), V] behind each token's predecessor."""

    def ask(prompt: list[int], answer: list[int]) -> Tensor:
        work = tmp_path_factory.mktemp("oracle")
        job = {"name": "a", "model": str(CHECKPOINT), "ids": prompt + answer, "prompts": [len(prompt)]}
        (work / "jobs.json").write_text(json.dumps([{**job, "decode": len(answer)}]))
        command = [sys.executable, "-P", str(ORACLE), str(work / "jobs.json"), str(work / "out.safetensors")]
        subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=280)
        return load_file(work / "out.safetensors")[f"a.{len(prompt)}"][len(prompt) - 1 : -1]

    return ask


@pytest.fixture(scope="session")
def make_environment() -> Callable[..., Path]:
    """`make_environment(name, *packages)`: the programs of build/peers/NAME, made first; skipped where it cannot be."""

    def made(name: str, *packages: str) -> Path:
        folder = PEERS / name
        if (folder / "complete").exists():
            return folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        for package in packages:
            pip = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check", package]
            done = subprocess.run(pip, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"{package} cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
        (folder / "complete").touch()
        return folder / "bin"

    return made


@pytest.fixture(scope="session")
def serving() -> Callable[..., Any]:
    """`serve`, for servers that a file's tests share."""
    return serve


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Its command line says how it drafts."""
    drafting = ("--num-speculative-tokens=2", "--lookup-rows=16")
    with serve(tmp_path_factory.mktemp("told"), "--max-model-len=1024", *drafting) as live:
        yield live


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """`start(*options)` gives a context manager with a server of the test's own."""
    return lambda *options, **settings: serve(tmp_path, *options, **settings)

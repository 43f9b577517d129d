"""Birth and death of the server's processes."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHECKPOINT = ROOT / "runtime/checkpoints/nano"
PLAIN = "/v1/completions"


def gone(pid: int, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists() or state(pid) == "Z":
            return True
        time.sleep(0.05)
    return False


def state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def test_who_is_in_flight_when_all_processes_are_stopped_is_told_so(start: Any) -> None:
    """As a campaign's reaper does it, or systemd: the engine may end before its server knows."""
    with start() as server:
        workers = server.worker_pids
        events = server.events(PLAIN, prompt="a", max_tokens=1500, ignore_eos=True)
        next(events)
        for pid in (*workers, server.process.pid):
            os.kill(pid, signal.SIGTERM)
        *_, last, done = events
        error = json.loads(last)["error"]
        assert done == "[DONE]" and error["type"] == "service_unavailable_error"
        assert "the server is being stopped" in error["message"]
        server.process.wait(timeout=20)
        assert all(gone(pid) for pid in workers) and "Traceback" not in server.log.read_text()


@pytest.mark.acceptance
def test_a_stopped_server_lets_requests_end_and_tells_the_others(start: Any) -> None:
    long = {"prompt": "a", "max_tokens": 8000, "ignore_eos": True}
    with start() as server, ThreadPoolExecutor() as others:
        workers = server.worker_pids
        short = server.events(PLAIN, prompt="a", max_tokens=200, ignore_eos=True)
        next(short)
        streamed = others.submit(list, server.events(PLAIN, **long))
        whole = others.submit(server.ask, "POST", PLAIN, long)
        with socket.create_connection(("127.0.0.1", server.port)) as unfinished:
            unfinished.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
            time.sleep(0.3)
            os.kill(server.process.pid, signal.SIGTERM)
            *_, last, done = short
            assert done == "[DONE]" and json.loads(last)["choices"][0]["finish_reason"] == "length"
            *_, last, done = streamed.result()
            assert done == "[DONE]" and json.loads(last)["error"]["type"] == "service_unavailable_error"
            assert whole.result().status == 503
            assert "the server is being stopped" in whole.result().json["error"]["message"]
            assert unfinished.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
        server.process.wait(timeout=20)
        assert all(gone(pid) for pid in workers) and "Traceback" not in server.log.read_text()


@pytest.mark.acceptance
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(start: Any, sent: signal.Signals) -> None:
    with start() as server:
        workers = server.worker_pids
        os.kill(server.process.pid, sent)
        server.process.wait(timeout=60)
        assert all(gone(pid) for pid in workers)
        assert "Traceback" not in server.log.read_text()


def test_a_killed_api_process_takes_its_workers_along(start: Any) -> None:
    """Also in mid-request, when the worker is busy and reads nothing."""
    with start() as server:
        workers = server.worker_pids
        events = server.events(PLAIN, prompt="a", max_tokens=1500, ignore_eos=True)
        next(events)
        os.kill(server.process.pid, signal.SIGKILL)
        assert all(gone(pid) for pid in workers)


def test_a_dead_worker_fails_the_request_and_ends_the_server(start: Any) -> None:
    with start() as server:
        events = server.events(PLAIN, prompt="a", max_tokens=1500, ignore_eos=True)
        next(events)
        os.kill(server.worker_pids[0], signal.SIGKILL)
        *_, last, done = events
        assert done == "[DONE]" and "rank 0" in json.loads(last)["error"]["message"]
        assert server.process.wait(timeout=60) == 1
        log = server.log.read_text()
        assert "rank 0" in log and "Traceback" not in log


def test_before_it_is_ready_a_server_says_so(start: Any) -> None:
    with start(wait=False) as server:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                reply = server.ask("GET", "/health")
                break
            time.sleep(0.01)
        assert reply.status in (200, 503)
        if reply.status == 503:
            assert "loading" in reply.json["error"]["message"]


def test_weights_that_cannot_be_served_end_the_server_with_one_sentence(start: Any, tmp_path: Path) -> None:
    model = tmp_path / "broken"
    shutil.copytree(CHECKPOINT, model)
    (model / "model.safetensors").write_bytes(b"not safetensors")
    with start(model=model, wait=False) as server:
        assert server.process.wait(timeout=90) == 1
        log = server.log.read_text()
        assert log.startswith("error: ") and "safetensors" in log and "Traceback" not in log


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "/nowhere", "--port", "1"], "/nowhere"),
        (["--model", str(CHECKPOINT), "--port", "70000"], "a port is a number from 0 to 65535, not 70000"),
        (["--model", str(CHECKPOINT), "--port", "http"], "a port is a number from 0 to 65535, not http"),
        (["--model", str(CHECKPOINT), "--port", "1", "--threads", "0"], "at least 1"),
        (["--model", str(CHECKPOINT), "--port", "1", "--dev", "cuda"], "unrecognized arguments: --dev"),
        (["--model", str(CHECKPOINT), "--port", "1", "--api-key-file", "/nowhere"], "/nowhere"),
    ],
    ids=["no-model", "no-port", "no-number", "no-threads", "abbreviated", "no-key"],
)
def test_usage_errors(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runtime.server", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and words in done.stderr
    assert done.stderr.startswith("python -m runtime.server: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("127.0.0.1", "error: port {port} of 127.0.0.1 is taken; choose another with --port\n"),
        ("name.invalid", "choose another --host or --port\n"),
    ],
)
def test_a_port_that_is_not_to_be_had_is_one_sentence_before_anything_is_loaded(host: str, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = ["--model", str(CHECKPOINT), "--host", host, "--port", str(port)]
        done = subprocess.run(
            [sys.executable, "-m", "runtime.server", *command], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 3 and done.stderr.endswith(words.format(port=port)) and "Traceback" not in done.stderr


def test_a_port_that_the_system_chose_is_printed_and_an_api_key_is_asked_for(start: Any, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("secret-17\n")
    with start("--port", "0", "--api-key-file", str(key_file), wait=False) as server:
        deadline = time.monotonic() + 60
        while "listening on" not in server.log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        server.port = int(server.log.read_text().rpartition(":")[2])
        server.wait_ready()
        assert server.ask("GET", "/health").status == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret-17"}):
            refused = server.ask("GET", "/v1/models", **headers)
            assert refused.status == 401 and "secret" not in refused.body.decode()
        assert server.ask("GET", "/v1/models", Authorization="Bearer secret-17").status == 200

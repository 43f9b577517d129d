"""The two requests of a pair meet the same treatment: told by what reaches the server in which order, not by times."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, ClientPlan, Fixture, Order, Role, ServerPlan, StartupMode
from campaigns.seeds import measured_seed
from orchestrator.measuring.bench import Attempt, Bench
from orchestrator.measuring.client import Client
from orchestrator.servers.adapters import open_adapter
from orchestrator.servers.serving import Ground, RunningServer

COUNTER = b"# TYPE vllm:inter_token_latency_seconds histogram\nvllm:inter_token_latency_seconds_count 3\n"
MEASURED = "POST /v1/completions"


class Listener:
    """An HTTP/1.1 server on bare sockets that writes down every connection and every request as they come."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self._arm: Any = {}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        file, turn = connection.makefile("rb"), 0
        while line := file.readline().decode():
            method, path, _ = line.split()
            headers = {}
            while (field := file.readline().decode().strip()) != "":
                name, _, value = field.partition(":")
                headers[name.lower()] = value.strip()
            body = file.read(int(headers.get("content-length", 0)))
            self.seen.append(f"{method} {path} on a {'kept' if turn else 'fresh'} connection")
            turn += 1
            connection.sendall(self._answer(method, path, body))
            if headers.get("connection") == "close":
                break
        connection.close()

    def _answer(self, method: str, path: str, body: bytes) -> bytes:
        if path == "/v1/completions":
            self.bodies.append(json.loads(body))
            events = [{"choices": [{"text": "a", "token_ids": [1], "finish_reason": "stop"}]}]
            events += [{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}]
            text = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
            return _response("text/event-stream", text + b"data: [DONE]\n\n")
        if path == "/metrics":
            return _response("text/plain", COUNTER)
        if path == "/campaign/arm" and method == "PUT":
            self._arm = json.loads(body)
        answers = {"/campaign/arm": self._arm, "/campaign/counters": {"counters": []}}
        return _response("application/json", json.dumps(answers.get(path, {})).encode())


def _response(kind: str, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind.encode(), len(body), body)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def before_each_measured(seen: list[str]) -> list[list[str]]:
    """What reached the server since the measured request before, and how that one came."""
    parts: list[list[str]] = [[]]
    for line in seen:
        parts[-1].append(line)
        if line.startswith(MEASURED):
            parts.append([])
    return parts[:-1]


@pytest.mark.parametrize("keep_alive", [False, True])
@pytest.mark.parametrize(("adapter", "calls"), [("attach", 2), ("dflash2", 3)])
@pytest.mark.parametrize("order", Order)
def test_both_requests_of_a_pair(
    tmp_path: Path, listener: Listener, adapter: str, calls: int, keep_alive: bool, order: Order
) -> None:
    plan = CampaignPlan(
        name="alike",
        control=Arm("one"),
        candidate=Arm("two"),
        fixtures=(Fixture("f", '{"prompt": "abc"}', (1,), chat=False),),
        server=ServerPlan(adapter, base_url=listener.url),
        startups=1,
        pairs=3,
        warmups=2,
        order=order,
        startup_mode=StartupMode.SWITCH,
        client=ClientPlan(keep_alive=keep_alive),
    )
    [block] = blocks(plan, 0)
    server = RunningServer(open_adapter("attach"), plan.server, (plan.control,), None, Ground({}, (), (), tmp_path))
    with Client() as client:
        bench = Bench(plan, open_adapter(adapter), client, Attempt("c", 0, 1))
        bench.servers = dict.fromkeys(Role, server)
        bench.warm(block, block.warmups, tuple(Role), 4, 1)
        listener.seen.clear()
        requests = [each for key in block.keys for each in bench.run(_steps(block, key), 4, 1)]
    assert all(request.admissible for request in requests), [request.error for request in requests]
    treatments = before_each_measured(listener.seen)
    # Before the first of a pair lies the end of the pair before, then what lies between the first and the second.
    assert len(treatments) == 6 and len(treatments[1]) == calls + 1, treatments[1]
    assert all(treatment[-calls - 1 :] == treatments[1] for treatment in treatments), treatments
    asked = [body["seed"] for body in listener.bodies]
    assert len(set(asked[:4])) == 2 and asked[4:] == [measured_seed(plan, block.keys[0])] * 6
    assert not set(asked[:4]) & set(asked[4:]) and [r.sent_seed for r in requests] == asked[4:]


def _steps(block: Any, key: Any) -> tuple[Any, ...]:
    return tuple(step for step in block.steps if step.key == key)

"""A busy server that says when to come again is left alone until then: RFC 9110, 10.2.3, over real sockets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import ServerFailed
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, ClientPlan, Fixture, Role, ServerPlan
from campaigns.reasons import Reason
from orchestrator.measuring.bench import Attempt, Bench
from orchestrator.servers.adapters import open_adapter
from orchestrator.servers.adapters.control import ask
from orchestrator.servers.busy import retry_after_s
from orchestrator.servers.serving import Ground, RunningServer

NOW = "Wed, 21 Oct 2015 07:27:50 GMT"


@pytest.mark.parametrize(
    ("status", "value", "seconds"),
    [
        (429, "3", 3.0),
        (503, " 120 ", 120.0),
        (503, "0", 0.1),
        (429, "Wed, 21 Oct 2015 07:28:00 GMT", 10.0),
        (429, "Wednesday, 21-Oct-15 07:28:00 GMT", 10.0),  # RFC 850, obsolete and still to be read
        (429, "Wed Oct 21 07:28:00 2015", 10.0),  # asctime
        (429, "Wed, 21 Oct 2015 07:27:00 GMT", 0.1),
        (429, "", None),
        (429, "-1", None),
        (429, "1.5", None),
        (429, "²", None),
        (429, "soon", None),
        (400, "3", None),
        (200, "3", None),
    ],
)
def test_seconds_or_a_date(status: int, value: str, seconds: float | None) -> None:
    assert retry_after_s(status, value, NOW) == seconds


def busy(after: str, status: str = "429 Too Many Requests") -> list[bytes]:
    body = b'{"error": {"message": "slow down"}}'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nRetry-After: {after}"
    return [head.encode() + b"\r\n\r\n" + body]


def found(body: bytes = b"{}") -> list[bytes]:
    return [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


@pytest.mark.parametrize(
    ("after", "waited", "told"),
    [("3", 3.0, "Retry-After 3 s waited for"), ("90", 7.0, "90 s, of which 7 s (client.timeout_s) were waited for")],
)
def test_the_next_request_waits(
    wire: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, waited: float, told: str
) -> None:
    waits: list[float] = []
    stream = wire.stream(wire.text("a", (1,)), wire.text("b", (2,), "stop"), wire.usage(2))
    server = wire.serve(busy(after), stream)
    plan = CampaignPlan(
        "busy",
        Arm("one"),
        Arm("two"),
        (Fixture("f", '{"prompt": "abc"}', (1,), chat=False),),
        ServerPlan("attach", base_url=server.url),
        startups=1,
        pairs=1,
        client=ClientPlan(timeout_s=7.0),
    )
    running = RunningServer(open_adapter("attach"), plan.server, (plan.control,), None, Ground({}, (), (), tmp_path))
    bench = Bench(plan, _Plain(), wire.client, Attempt("c", 0, 1))
    bench.servers = dict.fromkeys(Role, running)
    monkeypatch.setattr(bench._ended, "wait", waits.append)
    first, second = bench.run(blocks(plan, 0)[0].steps, 4, 1)
    assert waits == [waited]
    assert (first.reasons, first.http_status) == ((Reason.HTTP_ERROR,), 429)
    assert first.error.startswith("HTTP 429: slow down; ") and told in first.error
    assert second.admissible and second.text == "ab"


class _Plain:
    """An adapter without calls of its own: only the measured requests reach the script."""

    def __init__(self) -> None:
        self._adapter = open_adapter("attach")

    def counters(self, base_url: str) -> None:
        return None

    def reset_cache(self, base_url: str) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


def test_a_call_beside_the_measured_ones_is_asked_again(wire: Any, waits: list[float]) -> None:
    assert ask(wire.serve(busy("2", "503 Service Unavailable"), found()).url, "GET", "/x") == (200, b"{}")
    assert waits == [2.0]
    later = wire.serve(busy("3600"))
    assert ask(later.url, "GET", "/x")[0] == 429 and waits == [2.0]


def test_a_server_that_is_not_ready_is_not_asked_before_its_time(
    wire: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    server = wire.serve(busy("20", "503 Service Unavailable"), found(), found())
    plan = ServerPlan("attach", base_url=server.url, ready_timeout_s=60.0)
    RunningServer(open_adapter("attach"), plan, (Arm("one"),), None, Ground({}, (), (), tmp_path)).await_ready()
    assert [line.split()[1] for line, *_ in server.requests] == ["/health", "/health", "/v1/models"]
    assert 20 <= now[0] - 1000 < 21

    never = ServerPlan("attach", base_url=wire.serve(busy("600")).url, ready_timeout_s=60.0)
    late = RunningServer(open_adapter("attach"), never, (Arm("one"),), None, Ground({}, (), (), tmp_path))
    with pytest.raises(ServerFailed, match=r"within 60 s \(HTTP 429, Retry-After 600 s\)"):
        late.await_ready()
    assert now[0] - 1000 < 90

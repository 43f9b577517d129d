"""How well this host's client sees a server whose truth is scripted: a few seconds before each startup's requests.

The null server states when it sent each chunk, the client when it received it, on one monotonic clock.

    delivery        client stamp − server stamp of one chunk
    request error   (tR − t0)/R as the client sees it − the same by the server's stamps: only the delivery of the first
                    and the last chunk remains, divided by R
    round error     median of the client's gaps − median of the server's gaps

`request_bias_ns` and `round_bias_ns` are the medians over requests of the absolute errors. `resolution_ns` is √2 times
the 95th percentile of the absolute request errors: an effect is a difference of two request averages, and one that is
smaller cannot be told from the client's own error. It holds for answers of 64 rounds and shrinks as 1/R; what the
server's process and the engine add is not in it, an A/A campaign shows that.

Real servers leave Nagle's algorithm on, write two chunks at once, or stand behind a proxy that cuts where it likes: the
request error is stated for each of these manners too.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from campaigns.errors import HelperLost, ServerFailed
from campaigns.records import Calibration
from orchestrator.measuring.client import Call, Client
from orchestrator.measuring.exchange import Exchange
from orchestrator.measuring.observe import coalesced_share
from orchestrator.measuring.stream import read
from orchestrator.servers.adapters.control import ask_json

NUM_ROUNDS = 64
INTERVAL_US = 4000
MANNERS = ("nagle", "coalescing", "fragments")
_MANNER_ROUNDS = 16
_MANNER_REQUESTS = 3
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Sight:
    """One request as both sides saw it: the stamps of its content chunks."""

    server_ns: tuple[int, ...]
    client_ns: tuple[int, ...]
    coalesced: float = 0.0  # share of its chunks that arrived with another

    @property
    def delivery_ns(self) -> list[int]:
        return [seen - sent for seen, sent in zip(self.client_ns, self.server_ns, strict=True)]

    @property
    def request_error_ns(self) -> float:
        delivery = self.delivery_ns
        return (delivery[-1] - delivery[0]) / (len(delivery) - 1)

    @property
    def round_error_ns(self) -> float:
        return statistics.median(_gaps(self.client_ns)) - statistics.median(_gaps(self.server_ns))


def calibrate(seconds: float, client: Client) -> Calibration:
    """Run the null server for about this long against the very client that will measure."""
    with null_server() as base_url:
        found = summary(observe_null(base_url, client, seconds))
        biases = {f"{manner}_bias_ns": _bias(base_url, client, manner) for manner in MANNERS}
    return replace(found, **biases)


def observe_null(base_url: str, client: Client, seconds: float) -> list[Sight]:
    """At least two requests; the one before them, which finds both processes cold, is left out."""
    deadline = time.monotonic() + seconds
    sights = [_sight(base_url, client, _call(base_url)) for _ in range(3)]
    while time.monotonic() < deadline:
        sights.append(_sight(base_url, client, _call(base_url)))
    return sights[1:]


def _bias(base_url: str, client: Client, manner: str) -> int:
    """Largest of a few requests: a manner that is measured wrongly shows in each or in every second one."""
    calls = [_call(base_url, _MANNER_ROUNDS, manner) for _ in range(_MANNER_REQUESTS)]
    return round(max(abs(_sight(base_url, client, call).request_error_ns) for call in calls))


def _sight(base_url: str, client: Client, call: Call) -> Sight:
    exchange = client.call(call)
    try:
        truth = ask_json(base_url, "GET", "/truth")
    except ServerFailed as error:
        raise HelperLost(f"the null server died while the client was calibrated: {error}") from error
    assert truth is not None
    seen, chunks = _seen(exchange), read(exchange.events).chunks
    return Sight(tuple(truth["requests"][-1]["chunks_ns"]), seen, coalesced_share(chunks))


def summary(sights: Sequence[Sight]) -> Calibration:
    delivery = sorted(ns for sight in sights for ns in sight.delivery_ns)
    errors = sorted(abs(sight.request_error_ns) for sight in sights)
    return Calibration(
        n_chunks=len(delivery),
        delivery_p50_ns=round(_quantile(delivery, 0.50)),
        delivery_p99_ns=round(_quantile(delivery, 0.99)),
        request_bias_ns=round(_quantile(errors, 0.50)),
        round_bias_ns=round(statistics.median(abs(sight.round_error_ns) for sight in sights)),
        resolution_ns=math.ceil(math.sqrt(2) * _quantile(errors, 0.95)),
        coalesced_share=statistics.fmean(sight.coalesced for sight in sights),
    )


@contextmanager
def null_server(interval_us: int = INTERVAL_US, manner: str = "") -> Iterator[str]:
    """Base URL of a null server in a process of its own."""
    program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("nullserver.py"))]
    command = [*program, "--interval-us", str(interval_us), "--manner", manner]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            port = process.stdout.readline()
            if not port:
                raise HelperLost(f"the null server ended with code {process.wait()} before it listened")
            yield f"http://127.0.0.1:{int(port)}"
        finally:
            process.stdin.close()
            process.terminate()


def _call(base_url: str, num_rounds: int = NUM_ROUNDS, manner: str = "") -> Call:
    asked: dict[str, Any] = {
        "model": "null",
        "prompt": "",
        "max_tokens": num_rounds + 1,
        "manner": manner,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return Call(base_url, "/v1/completions", json.dumps(asked).encode(), _TIMEOUT_S)


def _seen(exchange: Exchange) -> tuple[int, ...]:
    if exchange.failure is not None:
        raise HelperLost(f"the null server died while the client was calibrated: {exchange.message}")
    return tuple(chunk.at_ns for chunk in read(exchange.events).chunks)


def _gaps(stamps: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(stamps)]


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics, as numpy's default."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])

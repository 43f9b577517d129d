"""Does sampling the device disturb what is measured? Blocks of requests with the sampler on and off, in ABBA order.

    python benchmarks/sampler_effect.py [--pairs 8] [--requests 6] [--hz 4] [--model FOLDER]

The server is the embedded one (the engine's own decode time per round is compared) on `--model`, else the null server
(the client's). Every on-block is paired with the off-block beside it; off-blocks are halved and paired with themselves
for the noise that is there anyway. A sampler whose effect lies inside that noise does not disturb.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from campaigns.plan import Arm, Fixture, Sampling, ServerPlan
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.devices.sampler import Sampler
from orchestrator.measuring.calibration import null_server
from orchestrator.measuring.client import Call, Client
from orchestrator.measuring.stream import Reply, read
from orchestrator.servers.adapters import Ask, open_adapter

_SETTLE_S = 1.0
_PROMPT = Fixture("sampler", json.dumps({"messages": [{"role": "user", "content": "What is 17 + 25?"}]}), (1,))


@contextmanager
def embedded_server(model: Path, port: int = 18571) -> Iterator[str]:
    plan = ServerPlan("dflash2", model=str(model))
    with tempfile.TemporaryDirectory() as folder:
        launch = open_adapter("dflash2").launch(plan, (Arm("default"),), port, Path(folder))
        assert launch is not None
        with subprocess.Popen(launch.argv, cwd=folder) as server:
            try:
                _await_ready(f"http://127.0.0.1:{port}/health")
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()


def _await_ready(url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(url, timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{url} was not ready within a minute")


def round_ns(reply: Reply) -> float:
    """The engine's decode time over its rounds, else the client's."""
    if reply.engine is not None and reply.engine.decode_ns and reply.engine.rounds:
        return reply.engine.decode_ns / len(reply.engine.rounds)
    return (reply.chunks[-1].at_ns - reply.chunks[0].at_ns) / (len(reply.chunks) - 1)


def blocks(ask: Callable[[], Reply], hz: float, pairs: int, requests: int) -> Iterator[tuple[list[float], list[float]]]:
    """(on, off) per pair; the order flips from pair to pair."""
    with open_inventory() as inventory:
        uuids = [device.uuid for device in inventory.devices()]

    def block(on: bool) -> list[float]:
        with Sampler("auto", uuids, hz if on else 0) as sampler:
            time.sleep(_SETTLE_S)
            answers = [round_ns(ask()) for _ in range(requests)]
            assert bool(sampler.drain()) is on
        return answers

    for pair in range(pairs):
        first_on = pair % 2 == 0
        one, other = block(first_on), block(not first_on)
        yield (one, other) if first_on else (other, one)


def percent(one: list[float], other: list[float]) -> float:
    return 100 * math.log(statistics.median(one) / statistics.median(other))


def report(found: list[tuple[list[float], list[float]]]) -> None:
    effects = [percent(on, off) for on, off in found]
    noise = [percent(off[::2], off[1::2]) for _, off in found]
    level_ms = statistics.median(ns for _, off in found for ns in off) * 1e-6
    print(f"round with the sampler off: {level_ms:.4f} ms")
    for name, values in (("on against off", effects), ("off against off", noise)):
        spread = max(abs(value) for value in values)
        print(f"{name}: median {statistics.median(values):+.3f} %, largest {spread:.3f} %, {len(values)} pairs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--hz", type=float, default=4.0)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    server = embedded_server(options.model.resolve()) if options.model else null_server()
    adapter = open_adapter("dflash2")
    with server as base_url, Client() as client:
        path, body = adapter.body(Ask(_PROMPT, 1, 64, Sampling(), options.model.name if options.model else "null"))
        call = Call(base_url, path, body, 60.0)

        def ask() -> Reply:
            exchange = client.call(call)
            assert exchange.failure is None, exchange
            return read(exchange.events)

        ask()
        report(list(blocks(ask, options.hz, options.pairs, options.requests)))


if __name__ == "__main__":
    main()

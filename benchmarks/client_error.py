"""How wrong are streaming clients? All of them against one server whose truth is scripted, in one run.

    python benchmarks/client_error.py [--requests 20] [--tokens 128] [--interval-us 8000] [--passes 2]
        [--manners '' nagle coalescing fragments] [--busy 0 2]
        [--tokenizer FOLDER --vllm VENV --aiperf VENV --guidellm VENV]

Without options it compares our client with http.client, aiohttp and httpx. Each tool runs in the environment that is
named for it; docs/performance.md says how they were installed, and has the table. The clients take turns, `--passes`
times, so that a busy minute of the host does not fall on one of them alone.

Columns: delivery = client stamp - server stamp of a chunk (clients that give absolute stamps). TTFT = reported TTFT
minus the server's own time from having read the request to its first chunk: connecting, sending and delivery. Round
average = (last - first token)/R minus the server's, median of the absolute errors and 95th percentile. Round median =
median gap minus the server's, median of the absolute errors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from client_peers import Seen, Setup, aiperf, guidellm, libraries, run_library, vllm_bench

from orchestrator.measuring.calibration import MANNERS, null_server
from orchestrator.measuring.client import Call, Client
from orchestrator.measuring.stream import read
from orchestrator.servers.adapters.control import ask_json

Peer = Callable[[], list[Seen]]
Truth = dict[str, Any]


def ours(base_url: str, num_requests: int, num_tokens: int) -> list[Seen]:
    options = {"include_usage": True}
    body = json.dumps({"prompt": "", "max_tokens": num_tokens, "stream": True, "stream_options": options}).encode()
    with Client() as client:
        exchanges = [client.call(Call(base_url, "/v1/completions", body, 60.0)) for _ in range(num_requests)]
    return [Seen.from_stamps(e.send_ns, [chunk.at_ns for chunk in read(e.events).chunks]) for e in exchanges]


def peers(options: argparse.Namespace, base_url: str, folder: Path) -> dict[str, Peer]:
    count, tokens = options.requests, options.tokens
    found: dict[str, Peer] = {"this project": lambda: ours(base_url, count, tokens)}
    for name in libraries():
        found[name] = lambda name=name: run_library(name, base_url, count, tokens)  # type: ignore[misc]
    setup = Setup(base_url, options.tokenizer, count, tokens, folder)
    if options.vllm:
        found["vllm bench serve"] = lambda: vllm_bench(options.vllm, setup)
    if options.aiperf:
        found["AIPerf"] = lambda: aiperf(options.aiperf, setup)
    if options.guidellm:
        found["GuideLLM"] = lambda: guidellm(options.guidellm, setup)
    return found


def truth_since(base_url: str, seen_before: int, count: int) -> list[Truth]:
    """The last `count` answers: tools may send a probe or a warm-up first."""
    answer = ask_json(base_url, "GET", "/truth")
    assert answer is not None
    new: list[Truth] = answer["requests"][seen_before:]
    assert len(new) >= count, f"{count} requests were reported and {len(new)} answered"
    return new[-count:]


def num_answered(base_url: str) -> int:
    answer = ask_json(base_url, "GET", "/truth")
    assert answer is not None
    return len(answer["requests"])


def row(name: str, pairs: Sequence[tuple[Seen, Truth]]) -> str:
    delivery = [d for seen, truth in pairs for d in _delivery(seen, truth)]
    ttft = [seen.ttft_ns - (truth["chunks_ns"][0] - truth["arrival_ns"]) for seen, truth in pairs]
    average = [abs(seen.decode_ns - _decode(truth)) / (len(truth["chunks_ns"]) - 1) for seen, truth in pairs]
    medians = [abs(statistics.median(s.gaps_ns) - _median_gap(t)) for s, t in pairs if s.gaps_ns]
    cells = [
        *(_us(delivery, q) for q in (0.5, 0.99)),
        _us(ttft, 0.5),
        *(_us(average, q) for q in (0.5, 0.95)),
        _us(medians, 0.5),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _delivery(seen: Seen, truth: Truth) -> list[int]:
    if seen.stamps_ns is None:
        return []
    return [at - sent for at, sent in zip(seen.stamps_ns, truth["chunks_ns"], strict=True)]


def _decode(truth: Truth) -> int:
    return int(truth["chunks_ns"][-1] - truth["chunks_ns"][0])


def _median_gap(truth: Truth) -> float:
    return statistics.median(after - before for before, after in pairwise(truth["chunks_ns"]))


def _us(values_ns: Sequence[float], q: float) -> str:
    return f"{np.quantile(values_ns, q) / 1000:.1f}" if len(values_ns) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--interval-us", type=int, default=8000)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--manners", nargs="*", default=["", *MANNERS], help="of the server; '' is TCP_NODELAY")
    parser.add_argument("--busy", type=int, nargs="*", default=[0, 2], help="busy loops beside (none, then two)")
    for tool in ("vllm", "aiperf", "guidellm"):
        parser.add_argument(f"--{tool}", type=Path, metavar="VENV")
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="needed by the three tools")
    options = parser.parse_args()
    print(f"{options.requests * options.passes} requests of {options.tokens} chunks, one every")
    print(f"{options.interval_us} us; {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}. Microseconds.\n")
    print("| server | busy loops | client | delivery p50 | p99 | TTFT p50 | round average p50 | p95 | round median |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for manner in options.manners:
        for num_busy in options.busy:
            with busy(num_busy):
                found = measured(options, manner)
            for name, pairs in found.items():
                print(f"| {manner or 'polite'} | {num_busy} {row(name, pairs)}", flush=True)


def measured(options: argparse.Namespace, manner: str) -> dict[str, list[tuple[Seen, Truth]]]:
    """What every client saw of one server, and the truth."""
    found: dict[str, list[tuple[Seen, Truth]]] = {}
    with null_server(options.interval_us, manner) as base_url:
        for _ in range(options.passes):
            with tempfile.TemporaryDirectory() as folder:
                for name, peer in peers(options, base_url, Path(folder)).items():
                    before = num_answered(base_url)
                    seen = peer()
                    found.setdefault(name, []).extend(zip(seen, truth_since(base_url, before, len(seen)), strict=True))
    return found


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes beside, each of which would take a CPU to itself."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    main()

"""The other clients of `client_error.py`: each runs once against the null server and says what it saw.

Three HTTP libraries, in processes of their own, stamp a line as soon as the library hands it over: the best that a
benchmark tool built on them can do. Three benchmark tools run as their users run them, one request at a time, and
report through their own result files; none of them gives absolute stamps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

_LIBRARIES = ("http.client", "aiohttp", "httpx")


@dataclass(frozen=True)
class Seen:
    """One request as a client reports it. Times are nanoseconds; None where it does not say."""

    ttft_ns: float
    decode_ns: float  # first to last token
    gaps_ns: tuple[float, ...] | None = None
    stamps_ns: tuple[int, ...] | None = None  # CLOCK_MONOTONIC

    @classmethod
    def from_stamps(cls, send_ns: int, stamps: list[int]) -> Seen:
        gaps = tuple(after - before for before, after in pairwise(stamps))
        return cls(stamps[0] - send_ns, stamps[-1] - stamps[0], gaps, tuple(stamps))

    @classmethod
    def from_gaps(cls, ttft_ns: float, gaps: list[float]) -> Seen:
        return cls(ttft_ns, sum(gaps), tuple(gaps))


def libraries() -> tuple[str, ...]:
    """Those that are installed beside us."""
    code = "import importlib, sys; importlib.import_module(sys.argv[1])"
    return tuple(n for n in _LIBRARIES if subprocess.run([sys.executable, "-c", code, n], stderr=-3).returncode == 0)


def run_library(name: str, base_url: str, num_requests: int, num_tokens: int) -> list[Seen]:
    command = [sys.executable, __file__, name, base_url, str(num_requests), str(num_tokens)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return [Seen.from_stamps(send_ns, stamps) for send_ns, stamps in json.loads(answer.stdout)]


# -- libraries, inside the child -------------------------------------------------------------------------------------


def _body(num_tokens: int) -> dict[str, Any]:
    options = {"include_usage": True}
    return {"model": "null", "prompt": "", "max_tokens": num_tokens, "stream": True, "stream_options": options}


def _with_http_client(base_url: str, body: str, stamp: Any) -> Iterator[list[int]]:
    import http.client

    connection = http.client.HTTPConnection(base_url.removeprefix("http://"))
    while True:
        stamps = [stamp()]
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b'data: {"id"'):
                stamps.append(stamp())
        yield stamps


def _with_httpx(base_url: str, body: str, stamp: Any) -> Iterator[list[int]]:
    import httpx

    with httpx.Client(timeout=60.0) as client:
        while True:
            stamps = [stamp()]
            with client.stream("POST", f"{base_url}/v1/completions", content=body) as response:
                for line in response.iter_lines():
                    if line.startswith('data: {"id"'):
                        stamps.append(stamp())
            yield stamps


def _with_aiohttp(base_url: str, body: str, stamp: Any) -> Iterator[list[int]]:
    import asyncio

    import aiohttp

    async def ask(session: aiohttp.ClientSession) -> list[int]:
        stamps = [stamp()]
        async with session.post(f"{base_url}/v1/completions", data=body) as response:
            async for line in response.content:
                if line.startswith(b'data: {"id"'):
                    stamps.append(stamp())
        return stamps

    async def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    with asyncio.Runner() as runner:
        opened = runner.run(session())
        try:
            while True:
                yield runner.run(ask(opened))
        finally:
            runner.run(opened.close())


def _child(name: str, base_url: str, num_requests: int, num_tokens: int) -> None:
    import time

    ask = {"http.client": _with_http_client, "httpx": _with_httpx, "aiohttp": _with_aiohttp}[name]
    answers = ask(base_url, json.dumps(_body(num_tokens)), time.monotonic_ns)
    seen = [next(answers) for _ in range(num_requests)]
    print(json.dumps([(stamps[0], stamps[1 : 1 + num_tokens]) for stamps in seen]))


# -- benchmark tools ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """What every tool is told; `folder` takes its result files."""

    base_url: str
    tokenizer: Path
    num_requests: int
    num_tokens: int
    folder: Path


def vllm_bench(venv: Path, setup: Setup) -> list[Seen]:
    command = [
        *("bench", "serve", "--backend", "openai", "--base-url", setup.base_url, "--endpoint", "/v1/completions"),
        *("--model", "null", "--tokenizer", setup.tokenizer, "--dataset-name", "random", "--random-input-len", 16),
        *("--random-output-len", setup.num_tokens, "--num-prompts", setup.num_requests, "--max-concurrency", 1),
        *("--ignore-eos", "--save-result", "--save-detailed", "--result-dir", setup.folder),
        *("--result-filename", "vllm.json"),
    ]
    _run(venv / "bin" / "vllm", command, {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    result = json.loads((setup.folder / "vllm.json").read_text())
    pairs = zip(result["ttfts"], result["itls"], strict=True)
    return [Seen.from_gaps(ttft * 1e9, [gap * 1e9 for gap in gaps]) for ttft, gaps in pairs]


def aiperf(venv: Path, setup: Setup) -> list[Seen]:
    command = [
        *("profile", "-m", "null", "--url", setup.base_url, "--endpoint-type", "completions", "--streaming"),
        *("--tokenizer", setup.tokenizer, "--isl", 16, "--osl", setup.num_tokens, "--concurrency", 1),
        *("--request-count", setup.num_requests, "--extra-inputs", "ignore_eos:true", "--random-seed", 1),
        *("--use-server-token-count", "--ui", "none", "--output-artifact-dir", setup.folder / "aiperf"),
    ]
    _run(venv / "bin" / "aiperf", command, {})
    lines = (setup.folder / "aiperf" / "profile_export.jsonl").read_text().splitlines()
    records = sorted((json.loads(line) for line in lines), key=lambda r: r["metadata"]["request_start_ns"])
    return [_aiperf_record(record["metrics"]) for record in records]


def _aiperf_record(metrics: dict[str, Any]) -> Seen:
    gaps = [gap * 1e6 for gap in metrics["inter_chunk_latency"]["value"]]
    return Seen.from_gaps(metrics["time_to_first_token"]["value"] * 1e6, gaps)


def guidellm(venv: Path, setup: Setup) -> list[Seen]:
    path = setup.folder / "guidellm.json"
    command = [
        *("run", "--backend", f"kind=openai_http,target={setup.base_url},model=tiny,request_format=/v1/completions"),
        *("--profile", "kind=concurrent,streams=1", "--constraint", f"kind=max_requests,count={setup.num_requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={setup.tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={setup.num_tokens}"),
        *("--output", f"kind=json,path={path}", "--disable-progress"),
    ]
    _run(venv / "bin" / "guidellm", command, {"HF_HUB_OFFLINE": "1"})
    requests = json.loads(path.read_text())["benchmarks"][0]["requests"]["successful"]
    timings = sorted((request["info"]["timings"] for request in requests), key=lambda t: t["request_start"])
    return [_guidellm_record(timing) for timing in timings]


def _guidellm_record(timing: dict[str, float]) -> Seen:
    """It keeps the first and the last token's time only."""
    first, last = timing["first_token_iteration"], timing["last_token_iteration"]
    return Seen((first - timing["request_start"]) * 1e9, (last - first) * 1e9)


def _run(program: Path, arguments: list[Any], environment: dict[str, str]) -> None:
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-2000:]}")


def _parse() -> argparse.Namespace:
    what = "One HTTP library against a server, as a child of client_error.py: prints [send, chunk, …] in ns as JSON."
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("library", choices=_LIBRARIES)
    parser.add_argument("base_url", metavar="http://HOST:PORT")
    parser.add_argument("requests", type=int)
    parser.add_argument("tokens", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    child = _parse()
    _child(child.library, child.base_url, child.requests, child.tokens)

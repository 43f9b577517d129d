"""Tensor parallel on the CPU: more ranks, the same greedy tokens; one answer, one death."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runtime.config import TargetConfig, read_json
from runtime.errors import ModelError
from runtime.models.parallel import shard_config

ROOT = Path(__file__).resolve().parents[3]
QUESTION = "Hugo fills 4 boxes with 9 coins each. Ida takes 6 coins away. How many coins are left?"
GREEDY = {"temperature": 0.0, "max_tokens": 60, "ignore_eos": True, "return_token_ids": True}
SHORT = "--max-model-len=256"
ON_GPUS = ("--device=cuda", "--dtype=float16")
DEVICES = [
    pytest.param((), marks=pytest.mark.acceptance, id="cpu"),
    pytest.param(ON_GPUS, marks=pytest.mark.multi_gpu, id="cuda"),
]
PUBLISHING = [
    pytest.param((), "gathered", marks=pytest.mark.acceptance, id="gloo"),
    pytest.param((), "cpu-shared", marks=pytest.mark.acceptance, id="cpu"),
    pytest.param(ON_GPUS, "gathered", marks=pytest.mark.multi_gpu, id="nccl"),
    pytest.param(ON_GPUS, "peers", marks=pytest.mark.multi_gpu, id="cuda"),
]


def greedy(server: Any) -> list[int]:
    body = {"messages": [{"role": "user", "content": QUESTION}], **GREEDY}
    reply = server.ask("POST", "/v1/chat/completions", body)
    assert reply.status == 200, server.log.read_text()
    return reply.json["choices"][0]["token_ids"]


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.acceptance)])
def test_greedy_tokens_of_one_rank(server: Any, start: Any, size: int) -> None:
    with start(f"--tensor-parallel-size={size}", "--audit-ranks", SHORT) as parallel:
        assert greedy(parallel) == greedy(server)
        identity = parallel.ask("GET", "/campaign/identity").json
        assert [p["rank"] for p in identity["processes"]] == [None, *range(size)]
        assert {row["rank"] for row in identity["libraries"]} == set(range(size))
        assert identity["tensor_parallel_size"] == size
        select(parallel, projection="columns-32", publication="cpu-shared")
        assert greedy(parallel) == greedy(server)
        counters = parallel.ask("GET", "/campaign/counters").json["counters"]
        hits = {row["rank"]: row["hits"] for row in counters if row["schedule"] == "columns-32"}
        assert set(hits) == set(range(size)) and len(set(hits.values())) == 1


@pytest.mark.acceptance
def test_ranks_stop_at_the_same_round_and_go_on(start: Any) -> None:
    """A client that leaves is heard of by each rank on its own; they must agree on the round."""
    with start("--tensor-parallel-size=2", "--audit-ranks", SHORT) as parallel:
        expected = greedy(parallel)
        for _ in range(3):
            events = parallel.events("/v1/completions", prompt="a b", max_tokens=200, ignore_eos=True)
            next(events)
            events.close()
        assert greedy(parallel) == expected


def sampled(server: Any, seed: int) -> list[int]:
    body = {"prompt": "a b", "max_tokens": 80, "ignore_eos": True, "seed": seed, "return_token_ids": True}
    reply = server.ask("POST", "/v1/completions", body)
    assert reply.status == 200, server.log.read_text()
    return reply.json["choices"][0]["token_ids"]


def select(server: Any, **schedules: str) -> None:
    assert server.ask("PUT", "/campaign/arm", {"name": "x", "schedules": schedules}).status == 200


@pytest.mark.parametrize(("options", "schedule"), [PUBLISHING[1], PUBLISHING[-1]])
def test_ranks_that_publish_into_each_others_memory_say_the_same_under_load(
    start: Any, options: Any, schedule: str
) -> None:
    with start("--tensor-parallel-size=2", "--audit-ranks", *options, SHORT) as parallel:
        expected = greedy(parallel)
        select(parallel, publication=schedule)
        assert greedy(parallel) == expected and greedy(parallel) == expected
        counters = parallel.ask("GET", "/campaign/counters").json["counters"]
        hits = {row["rank"]: row["hits"] for row in counters if row["schedule"] == schedule}
        assert set(hits) == {0, 1} and hits[0] == hits[1] > 100
        with ThreadPoolExecutor(8) as clients:  # the ranks compare every token of what waits for one another here
            answers = list(clients.map(lambda seed: sampled(parallel, seed), [*range(8)] * 2))
        assert answers[:8] == answers[8:] and len(set(map(tuple, answers))) > 1


@pytest.mark.parametrize(("options", "schedule"), PUBLISHING)
def test_a_rank_that_stands_still_ends_the_server_with_a_sentence(start: Any, options: Any, schedule: str) -> None:
    with start("--tensor-parallel-size=2", "--rank-timeout=2", *options, SHORT) as parallel:
        select(parallel, publication=schedule)
        expected = greedy(parallel)
        pids = parallel.worker_pids
        events = parallel.events("/v1/completions", prompt="a b", max_tokens=200, ignore_eos=True)
        next(events)
        os.kill(pids[1], signal.SIGSTOP)
        said = list(events)
        assert "error" in said[-2] and said[-1] == "[DONE]" and len(expected) == 60
        assert parallel.process.wait(timeout=60) == 1
        said = re.search(r"rank 1 (in pub|has given).* stands still or is gone", parallel.log.read_text())
        assert said, parallel.log.read_text()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("options", DEVICES)
def test_a_dead_rank_fails_the_request_and_the_server(start: Any, options: Any) -> None:
    with start("--tensor-parallel-size=2", *options, "--max-model-len=1024") as parallel:
        events = parallel.events("/v1/completions", prompt="a b", max_tokens=1000, ignore_eos=True)
        next(events)
        pids = parallel.worker_pids
        os.kill(pids[1], signal.SIGKILL)
        said = list(events)
        assert "error" in said[-2] and said[-1] == "[DONE]"
        assert parallel.process.wait(timeout=60) == 1


def test_a_size_that_does_not_divide_is_refused() -> None:
    config = TargetConfig.from_hf(read_json(ROOT / "runtime/checkpoints/nano/config.json"))
    assert shard_config(config, 4).num_attention_heads == config.num_attention_heads // 4
    with pytest.raises(ModelError, match="size 3 does not divide num_attention_heads 8"):
        shard_config(config, 3)

"""Tensor parallel over gloo: two and four ranks against one, in FP32, with ties laid across the shards on purpose."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.native.machine import cpu_arch
from kernels.publication.cpu import SCHEDULE as SHARED

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("ranks.py")
# Ranks, and tokens of an answer: each round of each answer of each rank is compared, and a round is a dozen gathers.
GROUPS = (
    (2, 8),
    pytest.param((2, 16), marks=pytest.mark.acceptance),
    pytest.param((4, 16), marks=pytest.mark.acceptance),
)


def run_ranks(folder: Path, size: int, num_tokens: int) -> list[dict[str, Any]]:
    """What each rank of a group of `size` found."""
    outputs = [folder / f"{size}-{rank}.pt" for rank in range(size)]
    commands = [
        [sys.executable, str(SCRIPT), str(rank), str(size), str(folder / "meeting"), str(output), str(num_tokens)]
        for rank, output in enumerate(outputs)
    ]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}  # a compiler, where nothing is built yet
    children = [subprocess.Popen(command, cwd=ROOT, env=environment) for command in commands]
    try:
        assert [child.wait(timeout=240) for child in children] == [0] * size
    finally:
        for child in children:
            child.kill()
            child.wait()
    return [torch.load(output, weights_only=True) for output in outputs]


@pytest.fixture(scope="module", params=GROUPS, ids=lambda group: f"{group[0]}-ranks-{group[1]}-tokens")
def group(request: pytest.FixtureRequest) -> tuple[int, int]:
    size, num_tokens = request.param
    return size, num_tokens


@pytest.fixture(scope="module")
def alone(group: tuple[int, int]) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("ranks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.jobs(0, 1, "", group[1])
    return found


@pytest.fixture(scope="module")
def ranks(group: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(tmp_path_factory.mktemp("ranks"), *group)


def same(mine: Any, other: Any) -> bool:
    if isinstance(mine, torch.Tensor):
        return torch.equal(mine.nan_to_num(-1.0), other.nan_to_num(-1.0))
    if isinstance(mine, tuple):
        return all(map(same, mine, other))
    return bool(mine == other)


def test_merged_candidates_are_those_of_whole_rows(alone: dict[str, Any], ranks: list[dict[str, Any]]) -> None:
    """Values and ids, probe included, whatever the ties, the mask, and the width of a shard beside k."""
    for rank in ranks:
        assert rank["selections"].keys() == alone["selections"].keys()
        for name, expected in alone["selections"].items():
            assert same(rank["selections"][name], expected), name
    assert alone["selections"]["nan: broken"] and alone["selections"]["nothing: broken"]
    assert not alone["selections"]["empty shards: broken"]


@pytest.mark.parametrize("model", ["plain", "twins", "4-bit"])
def test_every_rank_says_what_one_rank_says(
    alone: dict[str, Any], ranks: list[dict[str, Any]], group: tuple[int, int], model: str
) -> None:
    for name, (expected, _) in alone["answers"][model].items():
        assert len(expected) == group[1] and len(set(expected)) > 3, name
        for rank in ranks:
            assert rank["answers"][model][name][0] == expected, name


def test_of_twins_the_smaller_id_is_said(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert max(rank["answers"]["twins"]["greedy, free"][0]) < 66


def test_whole_rows_travel_only_where_the_sampler_needs_them(
    ranks: list[dict[str, Any]], group: tuple[int, int]
) -> None:
    """Without ties never under a top-k, without a top-k always; an odd top-k of twins splits a pair."""
    for rank in ranks:
        counts = {model: {name: count for name, (_, count) in said.items()} for model, said in rank["answers"].items()}
        assert all(of[name] == 0 for of in counts.values() for name in ("greedy, free", "greedy, masked"))
        assert counts["plain"]["top-20, free"] == counts["plain"]["top-5, free"] == 0
        assert min(counts["plain"]["no top-k, free"], counts["twins"]["top-5, free"]) >= group[1] // 2


@pytest.mark.skipif(bool(SHARED.machine and SHARED.machine.refusal("cpu", cpu_arch())), reason="no x86-64-v3")
def test_ranks_that_publish_through_shared_memory_say_the_same(
    alone: dict[str, Any], ranks: list[dict[str, Any]]
) -> None:
    for rank in ranks:
        for model, found in rank["published"].items():
            assert found["hits"]["cpu-shared"] > 50 and found["hits"] == ranks[0]["published"][model]["hits"]
            for name, tokens in found["answers"].items():
                assert tokens == alone["answers"][model][name][0], (model, name)


def test_audit_mode_notices_on_every_rank_that_one_differs(ranks: list[dict[str, Any]]) -> None:
    assert all(rank["audits"] == {"notices a rank that differs": True} for rank in ranks)


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.acceptance), pytest.param("cuda", marks=pytest.mark.multi_gpu)]
)
def test_the_benchmark_finds_equal_tokens_in_fp32(device: str) -> None:
    """On CUDA the ranks speak through NCCL. The benchmark's exit code is 1 where a token differs."""
    script = str(ROOT / "benchmarks/tensor_parallel.py")
    command = [sys.executable, script, "--cases=nano:float32", f"--device={device}", "--prompt=40", "--tokens=24"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = map(json.loads, done.stdout.splitlines())
    assert line["first_difference"] is None and line["ranks"] == 2 and line["tokens"] == 24

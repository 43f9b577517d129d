"""Ranks in processes of their own that publish through shared memory: late ones, lost ones, epochs that wrap."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
import torch

from kernels.checking.cases.projection import weight_of
from kernels.checking.cases.trial import Draw
from kernels.errors import RankLost
from kernels.native.machine import cpu_arch
from kernels.publication import Ranks, cpu, cuda, gathered, stream

WIDTH = 48
FORKED = multiprocessing.get_context("fork")  # torch is loaded already, and these processes compute in one thread
REFUSAL = cpu.SCHEDULE.machine.refusal("cpu", cpu_arch()) if cpu.SCHEDULE.machine else None
pytestmark = pytest.mark.skipif(REFUSAL is not None, reason=str(REFUSAL))


def run_ranks(size: int, place: Path, work: Callable[[Ranks], Any], limit_s: float = 30.0) -> list[Any]:
    """What `work` returned in each rank's process, or the exception it raised."""
    together, answers = FORKED.Barrier(size), [FORKED.SimpleQueue() for _ in range(size)]

    def gather(x: torch.Tensor) -> list[torch.Tensor]:
        together.wait()  # all that connecting on the CPU needs of it
        return [x] * size

    def child(rank: int) -> None:
        ranks = Ranks(rank, size, gather, place=str(place / "ranks"), limit_s=limit_s)
        try:
            answers[rank].put(work(ranks))
        except BaseException as error:
            answers[rank].put(repr(error))

    children = [FORKED.Process(target=child, args=(rank,)) for rank in range(size)]
    for process in children:
        process.start()
    try:
        found = [answer.get() for answer in answers]
    finally:
        for process in children:
            process.kill()
            process.join()
    return found


def share_of(turn: int, rank: int) -> torch.Tensor:
    """FP32 partial rows of a turn, of one to eight rows; large ones show the order of additions."""
    draw = torch.Generator().manual_seed(turn * 64 + rank)
    return torch.randn(1 + turn % 8, WIDTH, generator=draw) * 10.0 ** (3 * (rank % 2))


def hammered(turns: int) -> Callable[[Ranks], int]:
    """How many of the sums differ from those of gathered rows, each rank late now and then."""

    def work(ranks: Ranks) -> int:
        late = random.Random(ranks.rank)
        mail = ranks.mail = cpu.connect(ranks)
        mail.state[0] = -turns // 2  # the epochs wrap half way
        mail.keep[ranks.rank][cpu.FLAG_BYTES :] = 0xFF  # NaN where nobody has written
        ranks.gather(torch.zeros(1))
        wrong = 0
        for turn in range(turns):
            if late.random() < 0.1:
                time.sleep(late.random() / 200)
            total = cpu.exchange(share_of(turn, ranks.rank), ranks)
            want = gathered.summed([share_of(turn, rank) for rank in range(ranks.size)], torch.float32)
            wrong += not torch.equal(total, want)
        # After -1 comes 2: slots go on alternating, and 0 is what memory holds that nobody has written.
        return wrong + (int(mail.state[0]) != turns // 2 + 2)

    return work


@pytest.mark.parametrize("size", (2, pytest.param(4, marks=pytest.mark.acceptance)))
def test_late_ranks_find_every_sum_as_gathered_rows_give_it(size: int, tmp_path: Path) -> None:
    assert run_ranks(size, tmp_path, hammered(400)) == [0] * size
    assert not list(tmp_path.iterdir()), "inboxes are files only until all ranks have mapped them"


def test_a_rank_that_does_not_come_is_named_and_nobody_waits_twice(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> Any:
        cpu.exchange(share_of(0, ranks.rank), ranks)
        if ranks.rank == 1:
            return None
        took = []
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(RankLost, match=r"rank \d waited 0.5 s for rank 1 in publication 2: it stands still"):
                cpu.exchange(share_of(1, ranks.rank), ranks)
            took.append(time.monotonic() - began)
        return took[1] < 0.25 <= took[0], ranks.lost() != ""

    assert run_ranks(3, tmp_path, work, limit_s=0.5) == [(True, True), None, (True, True)]


@pytest.mark.parametrize(("k", "form", "sent"), [(128, "nvfp4", True), (64, "nvfp4", False), (128, "float16", False)])
def test_rows_are_sent_by_the_projection_where_the_stream_takes_them(
    k: int, form: str, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of 128 inputs in 4 bits; all else is projected by the arm's schedule and published as by `peers`."""
    x, weight = torch.ones(3, k, dtype=torch.float16), weight_of(Draw(1, "cpu"), WIDTH, k, form)
    order = cuda.Order(torch.zeros(3, WIDTH), torch.ones(3, WIDTH), (), ())
    launched, published = Mock(), Mock(return_value=("s", "y"))
    monkeypatch.setattr(stream, "launch", launched)
    monkeypatch.setattr(cuda, "ordered", Mock(return_value=order))
    monkeypatch.setattr(cuda, "exchange", published)
    found = stream.SCHEDULE.run(x, weight, None, None, 0.0, "ranks", lambda x, weight: "rows")
    assert found == ((order.s, order.y) if sent else ("s", "y"))
    assert launched.call_count == sent
    assert published.mock_calls == ([] if sent else [call("rows", torch.float16, None, None, 0.0, "ranks")])


@pytest.mark.multi_gpu
def test_two_gpus_agree_with_gathered_rows_late_or_not_and_in_graphs() -> None:
    """The benchmark's exit code is 1 where a byte differs or a lost rank is not named."""
    script = Path(__file__).parents[2] / "benchmarks/publication.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

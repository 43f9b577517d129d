"""The projection operator: thread and row independence, refusals."""

from __future__ import annotations

import pytest
import torch

from kernels.checking.cases.projection import ProjectionTrial, weight_of
from kernels.checking.cases.trial import Draw
from kernels.checking.compare import first_difference, rel_l2
from kernels.projection import OP, Problem, problem_of
from kernels.projection.nvfp4 import padded
from kernels.registry import select

ROW_INDEPENDENT = ("columns-32", "columns-128", "cpu-dot", "cpu-tile")


@pytest.fixture(params=[1, 2], ids=["1-thread", "2-threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ROW_INDEPENDENT)
@pytest.mark.parametrize(("n", "k"), [(100, 33), (64, 250), (33, 1000), (512, 256)])
def test_a_row_does_not_depend_on_its_neighbours(name, n, k, threads):
    trial, run = ProjectionTrial(8, n, k, "float32", "float32", 0, "cpu"), OP.schedule(name).run
    if refusal := OP.schedule(name).refusal(trial.problem):
        pytest.skip(refusal.reason)
    alone = torch.cat([run(trial.x[row : row + 1], trial.weight) for row in range(8)])
    assert first_difference(run(trial.x, trial.weight), alone) is None


@pytest.mark.parametrize("name", ROW_INDEPENDENT)
def test_the_number_of_threads_changes_no_byte(name):
    trial, before, found = ProjectionTrial(7, 300, 1000, "float32", "float32", 0, "cpu"), torch.get_num_threads(), []
    if refusal := OP.schedule(name).refusal(trial.problem):
        pytest.skip(refusal.reason)
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(OP.schedule(name).run(trial.x, trial.weight))
    torch.set_num_threads(before)
    assert first_difference(found[1], found[0]) is None and first_difference(found[2], found[0]) is None


def test_padding_a_weight_changes_no_byte():
    draw = Draw(3, "cpu")
    x, weight = draw.normal(8, 64), weight_of(draw, 100, 64, "nvfp4")
    wider = padded(weight, 256)
    assert wider.physical_n == 256
    for schedule in OP.schedules:
        if schedule.refusal(problem_of(x, wider)) is None:
            assert first_difference(schedule.run(x, wider), schedule.run(x, weight)) is None, schedule.name


REFUSALS = [
    ("columns-32", Problem(8, 64, 64, device="cuda", arch="sm_90"), "device"),
    ("columns-32", Problem(8, 64, 64, weight_format="nvfp4"), "weight format"),
    ("columns-32", Problem(17, 64, 64), "17 rows"),
    ("columns-128", Problem(0, 64, 64), "0 rows"),
    ("cpu-dot", Problem(8, 64, 64, device="cuda", arch="sm_90"), "device"),
    ("cpu-dot", Problem(8, 64, 64, arch="aarch64"), "'aarch64'; only x86-64-v3"),
    ("cpu-tile", Problem(8, 64, 64, arch="x86-64-v3", dtype="float64"), "x is float64"),
    ("cpu-tile", Problem(8, 64, 64, arch="x86-64-v3", weight_dtype="int8"), "weight is int8"),
    ("cpu-tile", Problem(17, 64, 64, arch="x86-64-v3"), "17 rows"),
]


@pytest.mark.parametrize(("name", "problem", "words"), REFUSALS, ids=[f"{row[0]}-{row[2]}" for row in REFUSALS])
def test_refuses_with_a_reason(name, problem, words):
    chosen = select(OP, problem, name)
    assert chosen.schedule.name == "dense"
    assert words in chosen.refusals[0][1].reason


def sums_and_rounded(schedule: str, device: str) -> None:
    """FP32 sums, rounded, are what the schedule gives without `wide`."""
    form = "nvfp4" if device == "cuda" or schedule == "dense" else "float16"
    trial = ProjectionTrial(8, 544, 1024, "float16", form, 8, device)
    chosen = select(OP, problem_of(trial.x, trial.weight, wide=True), schedule)
    if chosen.refusals:
        pytest.skip(chosen.explain())
    sums = chosen.schedule.run(trial.x, trial.weight, True)
    assert sums.dtype == torch.float32 and rel_l2(sums, OP.reference(trial.x, trial.weight)) < 2e-6
    assert first_difference(sums.half(), chosen.schedule.run(trial.x, trial.weight)) is None


@pytest.mark.parametrize("schedule", [s.name for s in OP.schedules if not (s.build and s.build.language == "cuda")])
def test_wide_outputs_are_the_sums_before_they_are_rounded(schedule):
    sums_and_rounded(schedule, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("schedule", [s.name for s in OP.schedules if not (s.build and s.build.language == "c++")])
def test_wide_outputs_are_the_sums_before_they_are_rounded_on_a_gpu(schedule):
    sums_and_rounded(schedule, "cuda")

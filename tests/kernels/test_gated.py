"""Gated projection: the reference, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels import projection
from kernels.gated import OP, Problem
from kernels.projection import DenseWeight
from kernels.registry import select


def test_reference_gates_the_first_half_by_silu():
    x, w = torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, -3.0], [1.0, 1.0], [5.0, 0.0]])
    got = OP.reference(x, DenseWeight(w))
    silu = [2 / (1 + torch.tensor(-2.0).exp()), -3 / (1 + torch.tensor(3.0).exp())]
    torch.testing.assert_close(got, torch.tensor([[silu[0] * 3, silu[1] * 10]]).double(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ("separate", "cpu-dot", "cpu-tile", "cpu-pair"))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_each_operation_rounds_as_it_would_on_its_own(name, dtype):
    """A bound leaves room for one rounding or for four; the rounded reference is met bit for bit, but for rare ties."""
    schedule, draw = OP.schedule(name), torch.Generator().manual_seed(3)
    x, weight = (
        torch.randn(8, 128, generator=draw).to(dtype),
        DenseWeight(torch.randn(200, 128, generator=draw).to(dtype)),
    )
    if refusal := schedule.refusal(projection.problem_of(x, weight)):
        pytest.skip(refusal.reason)
    equal = schedule.run(x, weight) == OP.reference(x, weight).to(dtype)
    assert equal.float().mean() > 0.97


TAKEN = Problem(8, 8704, 5120, "float16", "nvfp4", "nvfp4", 8704, 5120, "cuda", "sm_90")


@pytest.mark.parametrize(
    "change, word",
    [
        ({"device": "cpu"}, "cpu"),
        ({"arch": "sm_80"}, "sm_80"),
        ({"weight_format": "dense"}, "dense"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"m": 9}, "9 rows"),
        ({"k": 5184}, "5184"),
        ({"row_stride": 5121}, "5121"),
        ({"physical_n": 8710}, "8710"),
        ({"n": 8703}, "8703"),
    ],
)
def test_every_guard_line_refuses_by_name(change, word):
    assert select(OP, TAKEN, "nvfp4-stream").schedule.name == "nvfp4-stream"
    choice = select(OP, replace(TAKEN, **change), "nvfp4-stream")
    assert choice.schedule.name == "separate" and word in choice.explain()


ON_CPU = Problem(8, 200, 512, arch="x86-64-v3")


@pytest.mark.parametrize("name", ("cpu-dot", "cpu-tile", "cpu-pair"))
@pytest.mark.parametrize(
    "change, word",
    [
        ({"device": "cuda", "arch": "sm_90"}, "device 'cuda'"),
        ({"arch": "aarch64"}, "'aarch64'; only x86-64-v3"),
        ({"dtype": "float64"}, "x is float64"),
        ({"weight_dtype": "float64"}, "weight is float64"),
        ({"m": 17}, "17 rows"),
        ({"n": 201}, "201 rows are no gates"),
    ],
)
def test_every_guard_line_of_the_cpu_refuses_by_name(name, change, word):
    assert select(OP, ON_CPU, name).schedule.name == name
    choice = select(OP, replace(ON_CPU, **change), name)
    assert choice.schedule.name == "separate" and word in choice.explain()


@pytest.mark.parametrize("name", ("cpu-dot", "cpu-tile", "cpu-pair"))
def test_a_row_does_not_depend_on_the_rows_beside_it(name):
    schedule, draw = OP.schedule(name), torch.Generator().manual_seed(7)
    if refusal := schedule.refusal(projection.problem_of(torch.zeros(8, 52), DenseWeight(torch.zeros(66, 52)))):
        pytest.skip(refusal.reason)
    x, weight = torch.randn(7, 52, generator=draw), DenseWeight(torch.randn(66, 52, generator=draw))
    whole = schedule.run(x, weight)
    assert all(torch.equal(whole[row], schedule.run(x[row : row + 1], weight)[0]) for row in range(7))

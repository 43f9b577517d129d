"""The projection operator: every schedule against the FP64 reference, and the bytes that are promised."""

from __future__ import annotations

import pytest
import torch

from kernels.projection import OP, DenseWeight, Problem, problem_of
from kernels.registry import Bound, select

SHAPES = [(m, n, k) for m in range(1, 9) for n, k in ((1, 1), (33, 17), (100, 250), (257, 64), (128, 1000))]
SHAPES += [(16, 512, 256), (8, 384, 2048), (3, 31, 33000)]
TILED = ("columns-32", "columns-128")


def operands(m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, DenseWeight]:
    draw = torch.Generator().manual_seed(m * 1_000_003 + n * 1_009 + k)
    x = torch.randn(m, k, generator=draw).to(dtype)
    return x, DenseWeight(torch.randn(n, k, generator=draw).to(dtype))


def rel_l2(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@pytest.fixture(params=[1, 2], ids=["1-thread", "2-threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("schedule", OP.schedules, ids=lambda schedule: schedule.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 33, 17), (8, 100, 250), (5, 257, 64)], ids=str)
def test_within_the_bound_of_the_reference(schedule, dtype, shape):
    x, weight = operands(*shape, dtype)
    if schedule.guard(problem_of(x, weight)):
        pytest.skip("refused by its guard")
    bound = schedule.contract if isinstance(schedule.contract, Bound) else OP.parent(schedule).contract
    got = schedule.run(x, weight)
    assert got.dtype == dtype and got.shape == (shape[0], shape[1])
    assert rel_l2(got, OP.reference(x, weight)) <= (1e-6 if dtype == torch.float32 else bound.rel_l2)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_column_tiles_give_the_same_bytes(shape, threads):
    x, weight = operands(*shape)
    narrow, wide = (OP.schedule(name).run(x, weight) for name in TILED)
    assert torch.equal(narrow.view(torch.int32), wide.view(torch.int32))


@pytest.mark.parametrize("name", TILED)
def test_a_row_does_not_depend_on_its_neighbours(name, threads):
    x, weight = operands(8, 100, 250)
    together = OP.schedule(name).run(x, weight)
    alone = torch.cat([OP.schedule(name).run(x[row : row + 1], weight) for row in range(8)])
    assert torch.equal(together, alone)


@pytest.mark.parametrize(
    ("problem", "word"),
    [
        (Problem(8, 64, 64, device="cuda", arch="sm_90"), "device"),
        (Problem(8, 64, 64, weight_format="nvfp4"), "weight format"),
        (Problem(17, 64, 64), "rows"),
        (Problem(0, 64, 64), "rows"),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("name", TILED)
def test_column_tiles_refuse_with_a_reason(name, problem, word):
    chosen = select(OP, problem, name)
    assert chosen.schedule.name == "dense"
    assert word in chosen.refusals[0][1].reason

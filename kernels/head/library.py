"""The default head: torch's GEMM with an FP32 result, in slices of the vocabulary where it has to widen the weight.

A GPU multiplies 16-bit operands, in which products are exact, and keeps its FP32 sums. An NVFP4 weight is divided by
its global scale after the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.projection import dense
from kernels.projection.problem import Problem
from kernels.projection.weights import DenseWeight, Weight
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

SLICE = 8192


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """`x` [M, K] and a weight of [N, K] -> FP32 [M, N]."""
    import torch  # on first use, so that listing schedules does not load it

    if isinstance(weight, DenseWeight) and x.is_cuda and x.element_size() == 2:
        return torch.mm(x, weight.w.to(x.dtype).T, out_dtype=torch.float32)
    slices = [(first, min(first + SLICE, weight.n)) for first in range(0, weight.n, SLICE)]
    return torch.cat([part(x, weight, *span) for span in slices], -1)


def part(x: torch.Tensor, weight: Weight, first: int, last: int) -> torch.Tensor:
    from torch.nn.functional import linear  # on first use, as above

    if isinstance(weight, DenseWeight):
        return linear(x.float(), weight.w[first:last].float())
    return dense.accumulate(x, weight, first, last) / weight.global_scale


SCHEDULE = Schedule(
    name="library",
    revision=1,
    contract=Bound(rel_l2=1e-5, statement="FP32 accumulation in the library's order, no rounding to 16 bits"),
    guard=guard,
    run=run,
    summary="torch's GEMM, FP32 result",
)

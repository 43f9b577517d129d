"""The default projection: torch's own GEMM. Its accumulation order is the library's and depends on the shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.projection.problem import Problem
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """`x` [M, K] times a weight [N, K] transposed -> [M, N] in the dtype of `x`."""
    from torch.nn.functional import linear  # on first use, so that listing schedules does not load torch

    return linear(x, weight.dequantised().to(x.dtype))


SCHEDULE = Schedule(
    name="dense",
    revision=1,
    contract=Bound(rel_l2=4e-3, statement="FP32 accumulation in the library's order, one rounding to the dtype of x"),
    guard=guard,
    run=run,
    summary="torch's GEMM",
)

"""The default gated projection: gate and up in one projection, then SiLU and the product, each with its own rounding.

The projection is whatever the caller projects with, in a model the schedule of `projection` that its arm names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.projection import dense
from kernels.projection.problem import Problem
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(
    x: torch.Tensor, weight: Weight, project: Callable[[torch.Tensor, Weight], torch.Tensor] = dense.run
) -> torch.Tensor:
    """`x` [M, K] and a weight of [2 I, K] -> [M, I] in the dtype of `x`."""
    from torch.nn.functional import silu  # on first use, so that listing schedules does not load torch

    gate, up = project(x, weight).chunk(2, -1)
    return silu(gate) * up


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(
        rel_l2=8e-3, float32=1e-5, statement="FP32 sums in the library's order; gate, up, SiLU and product rounded each"
    ),
    guard=guard,
    run=run,
    summary="torch: projection, SiLU, product",
)

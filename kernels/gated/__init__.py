"""Gated projection: `silu(x · gateᵀ) * (x · upᵀ)` of a few rows, gate over up in one weight.

`run(x [M, K], weight [2 I, K]) -> y [M, I]`, `weight` as `projection` takes it, its first I rows the gates.
"""

from __future__ import annotations

from kernels.gated import cuda, reference, separate
from kernels.projection.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="gated",
    reference=reference.project,
    schedules=(separate.SCHEDULE, *cuda.SCHEDULES),
    default="separate",
)

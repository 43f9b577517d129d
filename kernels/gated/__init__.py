"""Gated projection: `silu(x · gateᵀ) * (x · upᵀ)` of a few rows, gate over up in one weight.

`run(x [M, K], weight [2 I, K], project) -> y [M, I]`, `weight` as `projection` takes it, its first I rows the gates.
`project(x, weight)` is how a schedule that does not fuse the projection makes it; without it torch's GEMM does.
"""

from __future__ import annotations

from kernels.gated import cpu, cuda, fp8_cuda, reference, separate
from kernels.projection.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="gated",
    reference=reference.project,
    schedules=(separate.SCHEDULE, *cpu.SCHEDULES, *cuda.SCHEDULES, fp8_cuda.SCHEDULE),
    default="separate",
)

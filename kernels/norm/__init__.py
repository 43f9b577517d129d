"""Residual sum and RMSNorm: `s = x + delta`, `y = s / rms(s) * scale`.

`run(x [R, H], delta [R, H] or None, scale FP32 [H], eps) -> (s [R, H], y [R, H])` in the dtype of x; without `delta` s
is x.
"""

from __future__ import annotations

from kernels.norm import cpu, cuda, reference, separate
from kernels.norm.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="norm",
    reference=reference.norm,
    schedules=(separate.SCHEDULE, cpu.SCHEDULE, cuda.SCHEDULE),
    default="separate",
)

"""Vocabulary logits of a few rows of 16-bit hidden states, in FP32 and never rounded to 16 bits: `y = x · wᵀ`.

`run(x [M, K], weight) -> y [M, N] FP32`, `weight` as `projection` takes it.
"""

from __future__ import annotations

from kernels.head import cuda, library
from kernels.projection import reference
from kernels.projection.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="head",
    reference=reference.project,
    schedules=(library.SCHEDULE, *cuda.SCHEDULES),
    default="library",
)

"""The drafter's walk through its candidate lattice: one token a row, each with the law it was drawn from.

`run(scores [n, K, K] FP32, candidates [n, K] int64, draws) -> (tokens [n] int64, q [n, K] FP64)`: `scores` of
candidate c after candidate j of the row before (row 0: after the anchor, any j).
"""

from __future__ import annotations

from kernels.registry import Op
from kernels.walk import native, reference, separate
from kernels.walk.problem import Draws, Problem, problem_of

__all__ = ["OP", "Draws", "Problem", "problem_of"]

OP = Op(
    name="walk",
    reference=reference.walk,
    schedules=(separate.SCHEDULE, *native.SCHEDULES),
    default="separate",
)

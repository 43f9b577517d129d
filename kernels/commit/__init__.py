"""What follows from an outcome: the next bonus, the selector, and the kept rows of context in the drafter's rings.

`run(packed [4 + n] int64, bonus [3] int64, selector [1] int32, window) -> next bonus [3]`, `packed` as `accept` makes
it. Selector and window are written in place; an outcome that does not hold (a flag is set) changes neither.
"""

from __future__ import annotations

from kernels.commit import native, separate
from kernels.commit.problem import Problem, Window, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "Window", "problem_of"]

OP = Op(
    name="commit",
    reference=separate.run,
    schedules=(separate.SCHEDULE, *native.SCHEDULES),
    default="separate",
)

"""Shortlist: of a vocabulary head's logits only the largest of each row, from codes of half the bytes and a proof.

`run(x [M, K], table, wanted, head) -> logits [M, V] FP32`. In each row the `wanted` largest logits, and all that equal
the smallest of these, are what the head's weight gives; every other is that or -inf, for one that is proven smaller.
`head(x)` makes all of them as the model does without this: what runs where no shortlist takes the problem.
"""

from __future__ import annotations

from kernels.registry import Op
from kernels.shortlist import bound, cuda, reference, whole
from kernels.shortlist.problem import Problem, problem_of
from kernels.shortlist.table import Table

__all__ = ["OP", "Problem", "Table", "problem_of"]

OP = Op(
    name="shortlist",
    reference=reference.largest,
    schedules=(whole.SCHEDULE, bound.SCHEDULE, *cuda.SCHEDULES),
    default="whole",
)

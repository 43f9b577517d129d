"""Selection by torch's stable sort of whole rows, which is the contract itself."""

from __future__ import annotations

from kernels.registry import Bound, Refusal, Schedule
from kernels.selection.problem import Problem
from kernels.selection.reference import choose


def guard(problem: Problem) -> Refusal | None:
    """Takes everything."""
    return None


SCHEDULE = Schedule(
    name="sort",
    revision=1,
    contract=Bound(rel_l2=0.0, statement="values copied, dense tie order"),
    guard=guard,
    run=choose,
    summary="torch, stable sort of every row",
)

"""The default: all logits, as the model makes them without a shortlist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.registry import Bound, Refusal, Schedule
from kernels.shortlist.problem import Problem

if TYPE_CHECKING:
    import torch

    from kernels.shortlist.table import Table


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(x: torch.Tensor, table: Table, wanted: int, head: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """`head` of `x` [M, K]."""
    return head(x)


SCHEDULE = Schedule(
    name="whole",
    revision=1,
    contract=Bound(rel_l2=1e-5, statement="FP32 sums of all logits, in the library's order"),
    guard=guard,
    run=run,
    summary="the model's own head: every logit",
)

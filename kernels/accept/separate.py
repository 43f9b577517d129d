"""The default verdict: the caller's own, made of torch's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.accept.problem import Best, Chain, Problem, Rule
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

Separately = Callable[[Best, Chain, "torch.Tensor", Rule], "torch.Tensor"]


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(best: Best, chain: Chain, bonus: torch.Tensor, rule: Rule, separately: Separately) -> torch.Tensor:
    return separately(best, chain, bonus, rule)


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(rel_l2=0.0, statement="laws in FP64 in the library's order"),
    guard=guard,
    run=run,
    summary="torch: laws, tests, residual, race",
)

"""The default walk: the caller's own, made of torch's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.registry import Bound, Refusal, Schedule
from kernels.walk.problem import Draws, Problem

if TYPE_CHECKING:
    import torch

Separately = Callable[["torch.Tensor", "torch.Tensor", Draws], "tuple[torch.Tensor, torch.Tensor]"]


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(
    scores: torch.Tensor, candidates: torch.Tensor, draws: Draws, separately: Separately
) -> tuple[torch.Tensor, torch.Tensor]:
    return separately(scores, candidates, draws)


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(rel_l2=1e-12, statement="FP64 softmax and race in the library's order"),
    guard=guard,
    run=run,
    summary="torch: softmax, noise, race, pointers",
)

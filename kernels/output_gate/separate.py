"""The default output gate: torch's sigmoid and product; differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.output_gate.problem import Problem
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return (x * gate.sigmoid()).flatten(-2)


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(rel_l2=4e-3, float32=1e-6, statement="sigmoid in FP32 and rounded, product rounded"),
    guard=guard,
    run=run,
    summary="torch: sigmoid, product",
)

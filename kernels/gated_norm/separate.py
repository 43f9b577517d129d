"""The default gated norm: torch's RMSNorm and SiLU with the casts around them; differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.gated_norm.problem import Problem
from kernels.norm.separate import rms_norm
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(x: torch.Tensor, gate: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    from torch.nn.functional import silu  # on first use, so that listing schedules does not load torch

    gated = silu(gate.unflatten(-1, x.shape[-2:]).float())
    return (rms_norm(x, scale, eps) * gated).to(x.dtype).flatten(-2)


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(
        rel_l2=4e-3, float32=1e-5, statement="FP32 squares in torch's order, the norm rounded; SiLU and product in FP32"
    ),
    guard=guard,
    run=run,
    summary="torch: RMSNorm, SiLU, product and the casts around them",
)

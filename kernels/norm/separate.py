"""The default residual norm: addition, widening, torch's RMSNorm, rounding; differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.norm.problem import Problem
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def rms_norm(x: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / rms(x) * scale` over the last axis in FP32, rounded once to the dtype of x."""
    from torch.nn.functional import rms_norm as of  # on first use, so that listing schedules does not load torch

    if x.dtype == scale.dtype:
        return of(x, scale.shape, scale, eps)
    return of(x.float(), scale.shape, scale, eps).to(x.dtype)


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(
    x: torch.Tensor, delta: torch.Tensor | None, scale: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    s = x if delta is None else x + delta
    return s, rms_norm(s, scale, eps)


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(
        rel_l2=4e-3, float32=1e-5, statement="the sum rounded; FP32 squares in torch's order; one rounding of y"
    ),
    guard=guard,
    run=run,
    summary="torch: addition, RMSNorm and the casts around it",
)

"""The default block convolution: one sum, one shift and one product per tap; differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.block_conv.problem import Problem
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(x: torch.Tensor, dynamic: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    import torch  # on first use, so that listing schedules does not load it
    from torch.nn.functional import pad

    taps, groups = dynamic.shape[-2:]
    out = None
    for tap in range(taps):
        # Padded, then cut: a narrow block may have fewer rows than the tap reaches back.
        shifted = x if tap == 0 else pad(x, (0, 0, tap, 0))[..., : x.shape[-2], :]
        values = shifted.unflatten(-1, (groups, -1))
        kernel = base[tap].view(groups, -1) + dynamic[..., tap, :, None]
        out = kernel * values if out is None else torch.addcmul(out, kernel, values)
    return out.flatten(-2)


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(rel_l2=8e-3, float32=1e-6, statement="kernel, first product and every sum rounded"),
    guard=guard,
    run=run,
    summary="torch: sum, shift and product per tap",
)

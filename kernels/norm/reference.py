"""The numerical contract of the residual norm, in FP64 with the rounding between sum and norm.

`s` is rounded to the dtype of x, as an addition of its own rounds it, and the norm is that of the rounded sum; scale
and root are FP32 in a schedule, and `y` is rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def rms(x: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x²) + eps) * scale` over the last axis, in FP64."""
    wide = x.double()
    return wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * scale.double()


def norm(
    x: torch.Tensor, delta: torch.Tensor | None, scale: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP64 `s` and `y` [R, H]; `s` holds values of the dtype of x."""
    s = x if delta is None else (x.double() + delta.double()).to(x.dtype)
    return s.double(), rms(s, scale, eps)

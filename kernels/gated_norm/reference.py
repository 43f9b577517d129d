"""The numerical contract of the gated norm, in FP64 with the roundings that the separate operations have.

The norm of a head is rounded to the dtype of x; the gate's SiLU is not rounded, and their product is rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.norm.reference import rms

if TYPE_CHECKING:
    import torch


def gated_norm(x: torch.Tensor, gate: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    """FP64 [.., H * D]; the product is not rounded."""
    normed = rms(x, scale, eps).to(x.dtype).double().flatten(-2)
    wide = gate.double()
    return normed * (wide * wide.sigmoid())

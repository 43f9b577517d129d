"""The numerical contract of a gated projection, in FP64 with the roundings that the separate operations have.

Gate and up are rounded to the dtype of `x`, as a projection rounds them; SiLU of the rounded gate is rounded again, and
so is its product with the rounded up. A fused schedule keeps these boundaries, so only the sums over K may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.projection import reference

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight


def project(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """FP64 [M, I] of `x` [M, K] and a weight of [2 I, K]; the last product is not rounded."""
    gate, up = reference.project(x, weight).to(x.dtype).double().chunk(2, -1)
    return (gate * gate.sigmoid()).to(x.dtype).double() * up

"""The numerical contract of a publication, in FP64 with the roundings that separate operations have.

The product is the sum of all ranks' partial products, rounded once to the dtype of the residual; so is its sum with the
residual; the norm is that of the rounded sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernels.norm import reference as norms
from kernels.projection import reference as projections

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight


def publish(
    shares: Sequence[tuple[torch.Tensor, Weight]],
    residual: torch.Tensor | None,
    scale: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP64 `s` and `y` [M, N] of every rank's (x, weight)."""
    product = sum(projections.project(x, weight) for x, weight in shares)
    assert not isinstance(product, int), "a group has ranks"
    if residual is None or scale is None:
        return product, product
    return norms.norm(residual, product.to(residual.dtype), scale, eps)

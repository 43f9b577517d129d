"""The numerical contract of the block convolution, in FP64 with the roundings that the separate operations have.

A tap's kernel is rounded, the product of the first tap is rounded, and so is every sum but the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def convolve(x: torch.Tensor, dynamic: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """FP64 [.., B, H]; the last sum is not rounded."""
    (taps, groups), size = dynamic.shape[-2:], x.shape[-1] // dynamic.shape[-1]
    total = None
    for tap in range(taps):
        shifted = x.new_zeros(x.shape)
        shifted[..., tap:, :] = x[..., : max(0, x.shape[-2] - tap), :]
        kernel = base[tap].double().view(groups, size) + dynamic[..., tap, :, None].double()
        product = kernel.to(x.dtype).double().flatten(-2) * shifted.double()
        total = product if total is None else total.to(x.dtype).double() + product
    return total

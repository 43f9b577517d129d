"""The numerical contract of the output gate, in FP64: the sigmoid is rounded to the dtype of x, the product is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """FP64 [.., H * D]."""
    return (x.double() * gate.double().sigmoid().to(x.dtype).double()).flatten(-2)

"""The shapes and layout a schedule of the gated norm may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Problem:
    """`rows` of `heads` x `dim` values; `dense`: x is contiguous. `gate_stride`: elements between rows of the gate.

    `axes` counts the axes in front of heads and dim: one, or more in training.
    """

    rows: int
    heads: int
    dim: int
    dtype: str = "float32"
    dense: bool = True
    gate_stride: int | None = None
    axes: int = 1
    device: str = "cpu"
    arch: str = ""


def problem_of(x: torch.Tensor, gate: torch.Tensor) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    *lead, heads, dim = x.shape
    assert tuple(gate.shape) == (*lead, heads * dim) and gate.dtype == x.dtype, f"x {x.shape}, gate {gate.shape}"
    device = x.device.type
    return Problem(
        rows=x.numel() // (heads * dim),
        heads=heads,
        dim=dim,
        dtype=str(x.dtype).removeprefix("torch."),
        dense=x.is_contiguous() and gate.stride(-1) == 1,
        gate_stride=gate.stride(-2),
        axes=len(lead),
        device=device,
        arch=arch_of(device, x.device.index),
    )

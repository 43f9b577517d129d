"""The shapes and layout a schedule of the output gate may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Problem:
    """`rows` of `heads` x `dim` values; `dense`: x is contiguous. `gate_strides` count elements between rows and heads.

    `axes` counts the axes in front of heads and dim: one, or more in training.
    """

    rows: int
    heads: int
    dim: int
    dtype: str = "float32"
    dense: bool = True
    gate_strides: tuple[int, int] | None = None
    axes: int = 1
    device: str = "cpu"
    arch: str = ""


def problem_of(x: torch.Tensor, gate: torch.Tensor) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    assert x.shape == gate.shape and x.dtype == gate.dtype, f"x {x.shape}, gate {gate.shape}"
    *lead, heads, dim = x.shape
    device = x.device.type
    return Problem(
        rows=x.numel() // (heads * dim),
        heads=heads,
        dim=dim,
        dtype=str(x.dtype).removeprefix("torch."),
        dense=x.is_contiguous() and gate.stride(-1) == 1,
        gate_strides=(gate.stride(-3), gate.stride(-2)),
        axes=len(lead),
        device=device,
        arch=arch_of(device, x.device.index),
    )

"""The shapes and layout a schedule of the residual norm may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Problem:
    """`rows` of `width` values, with or without a `delta`; `row_strides` count elements between rows of x and delta."""

    rows: int
    width: int
    dtype: str = "float32"
    delta: bool = True
    row_strides: tuple[int, int] | None = None
    device: str = "cpu"
    arch: str = ""


def problem_of(x: torch.Tensor, delta: torch.Tensor | None) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    assert x.ndim == 2 and (delta is None or delta.shape == x.shape), f"x {x.shape}, delta {getattr(delta, 'shape', 0)}"
    device = x.device.type
    return Problem(
        rows=x.shape[0],
        width=x.shape[1],
        dtype=str(x.dtype).removeprefix("torch."),
        delta=delta is not None,
        row_strides=(x.stride(0), x.stride(0) if delta is None else delta.stride(0)),
        device=device,
        arch=arch_of(device, x.device.index),
    )

"""The shapes and layout a schedule of the block convolution may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Problem:
    """`blocks` of `rows` of `width` channels, `taps` taps and `groups` of channels that share a correction.

    `dense`: x and base are contiguous. `dynamic_strides` count elements between rows and taps of the corrections.
    """

    blocks: int
    rows: int
    width: int
    taps: int
    groups: int
    dtype: str = "float32"
    dense: bool = True
    dynamic_strides: tuple[int, int] | None = None
    device: str = "cpu"
    arch: str = ""


def problem_of(x: torch.Tensor, dynamic: torch.Tensor, base: torch.Tensor) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    rows, width = x.shape[-2:]
    taps, groups = dynamic.shape[-2:]
    assert dynamic.shape[:-2] == x.shape[:-1] and base.shape == (taps, width), f"x {x.shape}, taps {dynamic.shape}"
    assert width % groups == 0, f"{groups} groups do not divide {width} channels"
    assert x.dtype == dynamic.dtype == base.dtype, f"x is {x.dtype}, its taps {dynamic.dtype} and {base.dtype}"
    device = x.device.type
    return Problem(
        blocks=x.numel() // (rows * width),
        rows=rows,
        width=width,
        taps=taps,
        groups=groups,
        dtype=str(x.dtype).removeprefix("torch."),
        dense=x.is_contiguous() and base.is_contiguous() and dynamic.stride(-1) == 1,
        dynamic_strides=(dynamic.stride(-3), dynamic.stride(-2)),
        device=device,
        arch=arch_of(device, x.device.index),
    )

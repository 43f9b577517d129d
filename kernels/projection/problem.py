"""The shapes and layout a projection schedule may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight


@dataclass(frozen=True)
class Problem:
    """`m` rows of `k` values against `n` columns; `row_stride` counts elements of x between rows.

    `physical_n` is the number of columns the weight really holds: `n`, or more where it was padded. `wide`: y in FP32.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    weight_format: str = "dense"
    weight_dtype: str = "float32"
    physical_n: int | None = None
    row_stride: int | None = None
    device: str = "cpu"
    arch: str = ""
    wide: bool = False


def problem_of(x: torch.Tensor, weight: Weight, wide: bool = False) -> Problem:
    """The problem of `x` [M, K] and `weight`; reads shapes and strides, never values."""
    assert x.ndim == 2 and x.shape[1] == weight.k, f"x is {tuple(x.shape)}, the weight is {weight.n} x {weight.k}"
    device = x.device.type
    return Problem(
        m=x.shape[0],
        n=weight.n,
        k=weight.k,
        dtype=str(x.dtype).removeprefix("torch."),
        weight_format=weight.format,
        weight_dtype=weight.dtype,
        physical_n=weight.physical_n,
        row_stride=x.stride(0),
        wide=wide,
        device=device,
        arch=arch_of(device, x.device.index),
    )

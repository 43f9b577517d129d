"""The shapes and ranks a schedule of the publication may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight
    from kernels.publication.ranks import Ranks


@dataclass(frozen=True)
class Problem:
    """`rows` of `k` values of a rank's share against `width` columns, one of `ranks`; `row_stride` of the residual.

    `bare`: no residual and no norm. `apart` says why the ranks cannot write into each other's memory; empty where they
    can.
    """

    rows: int
    width: int
    k: int
    ranks: int
    dtype: str = "float32"
    row_stride: int | None = None
    apart: str = ""
    device: str = "cpu"
    arch: str = ""
    bare: bool = False


def problem_of(x: torch.Tensor, weight: Weight, residual: torch.Tensor | None, ranks: Ranks) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    shape = (x.shape[0], weight.n)
    assert x.shape[1] == weight.k, f"x is {tuple(x.shape)}, the weight {weight.n} x {weight.k}"
    assert residual is None or residual.shape == shape, f"residual {tuple(residual.shape)} beside a product {shape}"
    device = x.device.type
    return Problem(
        rows=x.shape[0],
        width=weight.n,
        k=weight.k,
        ranks=ranks.size,
        dtype=str(x.dtype).removeprefix("torch."),
        row_stride=None if residual is None else residual.stride(0),
        apart=ranks.apart,
        device=device,
        arch=arch_of(device, x.device.index),
        bare=residual is None,
    )

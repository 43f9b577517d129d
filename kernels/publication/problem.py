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
    """`rows` of `k` values of this rank's share against `width` columns, one of `ranks`; `row_stride` of the residual.

    `apart` says why the ranks cannot write into each other's memory; empty where they can.
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


def problem_of(x: torch.Tensor, weight: Weight, residual: torch.Tensor, ranks: Ranks) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    assert x.shape == (residual.shape[0], weight.k), f"x {tuple(x.shape)}, weight {weight.n} x {weight.k}"
    assert residual.shape[1] == weight.n, f"residual {tuple(residual.shape)}, weight {weight.n} x {weight.k}"
    device = residual.device.type
    return Problem(
        rows=residual.shape[0],
        width=weight.n,
        k=weight.k,
        ranks=ranks.size,
        dtype=str(residual.dtype).removeprefix("torch."),
        row_stride=residual.stride(0),
        apart=ranks.apart,
        device=device,
        arch=arch_of(device, residual.device.index),
    )

"""The shapes and layouts a shortlist may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch

    from kernels.shortlist.table import Table


@dataclass(frozen=True)
class Problem:
    """The `wanted` largest of each of `m` rows of `n` logits over `k` channels; `row_stride` of x counts elements."""

    m: int
    n: int
    k: int
    wanted: int
    dtype: str = "float16"
    weight_dtype: str = "float16"
    row_stride: int | None = None
    device: str = "cpu"
    arch: str = ""


def problem_of(x: torch.Tensor, table: Table, wanted: int) -> Problem:
    """The problem of `x` [M, K]; reads shapes and strides, never values."""
    m, k = x.shape
    n = table.weight.shape[0]
    assert k == table.weight.shape[1], f"x of {k} channels for a weight of {table.weight.shape[1]}"
    assert 1 <= wanted <= n, f"{wanted} of {n} logits"
    device = x.device.type
    return Problem(
        m=m,
        n=n,
        k=k,
        wanted=wanted,
        dtype=str(x.dtype).removeprefix("torch."),
        weight_dtype=str(table.weight.dtype).removeprefix("torch."),
        row_stride=x.stride(0),
        device=device,
        arch=arch_of(device, x.device.index),
    )

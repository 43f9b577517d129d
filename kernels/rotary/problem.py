"""The operands of the rotary operator grouped by owner, and the shapes and layout a schedule may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch

    Table = tuple[torch.Tensor, torch.Tensor]
    """cos and sin FP32 [.., T, 1, R] of positions; the first R values of a head rotate."""
else:
    Table = tuple


@dataclass(frozen=True, eq=False)
class Heads:
    """How a row of a projection divides: q (each head before its gate where `gated`), k, v; and the norms of q and k.

    Scales FP32 [D]; `q_scale` is None where there are no queries (`q_heads` 0).
    """

    q_scale: torch.Tensor | None
    k_scale: torch.Tensor
    eps: float
    q_heads: int
    kv_heads: int
    gated: bool = False

    @property
    def dim(self) -> int:
        return self.k_scale.shape[0]

    @property
    def widths(self) -> tuple[int, int, int]:
        """Columns of q (with its gates), k and v."""
        kv = self.kv_heads * self.dim
        return (1 + self.gated) * self.q_heads * self.dim, kv, kv

    def gate(self, qkv: torch.Tensor) -> torch.Tensor:
        """The gates [.., Hq, D] in a row of the projection, a view."""
        return qkv[..., : self.widths[0]].unflatten(-1, (self.q_heads, 2, self.dim))[..., 1, :]


@dataclass(frozen=True, eq=False)
class Store:
    """Where K and V go: pages [.., Hkv, D] of a layer and the physical token slot (int64) of each row [T]."""

    k_pages: torch.Tensor
    v_pages: torch.Tensor
    slots: torch.Tensor


@dataclass(frozen=True)
class Problem:
    """`rows` of a projection, `row_stride` elements apart; `rotated` values of a head rotate.

    `cache` is the dtype K and V are stored in, "" where they are not; `axes` counts the axes in front of a row's
    columns: one, or more in training.
    """

    rows: int
    q_heads: int
    kv_heads: int
    dim: int
    rotated: int
    gated: bool = False
    dtype: str = "float32"
    row_stride: int | None = None
    cache: str = ""
    dense: bool = True
    axes: int = 1
    device: str = "cpu"
    arch: str = ""


def problem_of(qkv: torch.Tensor, heads: Heads, table: Table, store: Store | None) -> Problem:
    """The problem of these operands; reads shapes and strides, never values. `dense`: the pages are contiguous."""
    assert qkv.shape[-1] == sum(heads.widths), f"rows of {qkv.shape[-1]} columns, heads want {heads.widths}"
    pages = (store.k_pages, store.v_pages) if store else ()
    assert all(page.shape[-2:] == (heads.kv_heads, heads.dim) for page in pages), f"pages {[p.shape for p in pages]}"
    device = qkv.device.type
    return Problem(
        rows=qkv.shape[:-1].numel(),
        q_heads=heads.q_heads,
        kv_heads=heads.kv_heads,
        dim=heads.dim,
        rotated=table[0].shape[-1],
        gated=heads.gated,
        dtype=str(qkv.dtype).removeprefix("torch."),
        row_stride=qkv.stride(-2),
        cache=str(pages[0].dtype).removeprefix("torch.") if pages else "",
        dense=all(tensor.is_contiguous() for tensor in (*pages, *table)),
        axes=qkv.ndim - 1,
        device=device,
        arch=arch_of(device, qkv.device.index),
    )

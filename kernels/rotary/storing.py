"""Rows into cache pages by torch: the cache's rounding, and the copy to physical slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernels.rotary.problem import Store

E4M3_MAX = 448.0
E4M3 = "float8_e4m3fn"


def encode(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` in the cache's dtype; E4M3 rounds to nearest even and saturates instead of overflowing to NaN."""
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(dtype) if str(dtype).endswith(E4M3) else x.to(dtype)


def put(pages: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> None:
    """Store `rows` [T, ..] of the dtype of `pages` [.., T', ..] at physical `slots` [T]."""
    flat = pages.view(-1, *rows.shape[1:])
    if rows.element_size() == 1:  # index_copy_ has no float8 kernel; the bytes are moved instead
        flat, rows = flat.view(slots.new_empty(0).byte().dtype), rows.view(slots.new_empty(0).byte().dtype)
    flat.index_copy_(0, slots, rows)


def write(store: Store, k: torch.Tensor, v: torch.Tensor) -> None:
    """Store rows `k`, `v` [T, Hkv, D]."""
    for pages, rows in ((store.k_pages, k), (store.v_pages, v)):
        put(pages, store.slots, encode(rows, pages.dtype))

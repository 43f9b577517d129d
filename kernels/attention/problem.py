"""The shapes and layout a verify-attention schedule may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Problem:
    """`rows` queries of one request against `table_pages` pages of `page_size` tokens. Strides count elements."""

    rows: int
    q_heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    table_pages: int
    q_dtype: str = "float32"
    kv_dtype: str = "float32"
    q_strides: tuple[int, ...] = ()
    k_strides: tuple[int, ...] = ()
    v_strides: tuple[int, ...] = ()
    device: str = "cpu"
    arch: str = ""

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.q_heads // self.kv_heads

    @property
    def capacity(self) -> int:
        """Tokens the page table can name: the longest a row can be."""
        return self.table_pages * self.page_size


def problem_of(q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, page_table: torch.Tensor) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    rows, q_heads, head_dim = q.shape
    _, page_size, kv_heads, kv_dim = k_pages.shape
    assert k_pages.shape == v_pages.shape and kv_dim == head_dim, f"q {q.shape}, K {k_pages.shape}, V {v_pages.shape}"
    assert q_heads % kv_heads == 0, f"{q_heads} query heads do not share {kv_heads} KV heads"
    assert k_pages.dtype == v_pages.dtype, f"K is {k_pages.dtype}, V is {v_pages.dtype}"
    device = q.device.type
    return Problem(
        rows=rows,
        q_heads=q_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        table_pages=page_table.shape[0],
        q_dtype=str(q.dtype).removeprefix("torch."),
        kv_dtype=str(k_pages.dtype).removeprefix("torch."),
        q_strides=q.stride(),
        k_strides=k_pages.stride(),
        v_strides=v_pages.stride(),
        device=device,
        arch=arch_of(device, q.device.index),
    )

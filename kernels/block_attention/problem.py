"""The operands of the block attention grouped by owner, and the shapes and layout a schedule may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Seen:
    """The context's K and V [L, Hkv, D], and which keys a row sees [R, L + R]. A key that no row sees is finite."""

    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True)
class Problem:
    """`rows` queries over `context` keys and their own block. `strides`: elements between rows of the block's K and V.

    `dense`: q, context and mask are contiguous, and so are a row's heads in k and v.
    """

    rows: int
    q_heads: int
    kv_heads: int
    dim: int
    context: int
    dtype: str = "float32"
    cache: str = "float32"
    strides: tuple[int, int] | None = None
    dense: bool = True
    device: str = "cpu"
    arch: str = ""

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.q_heads // self.kv_heads


def problem_of(q: torch.Tensor, seen: Seen, k: torch.Tensor, v: torch.Tensor) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    (rows, q_heads, dim), (context, kv_heads, _) = q.shape, seen.k.shape
    assert k.shape == v.shape == (rows, kv_heads, dim), f"q {q.shape}, k {k.shape}, v {v.shape}"
    assert seen.v.shape == seen.k.shape and seen.mask.shape == (rows, context + rows), f"mask {seen.mask.shape}"
    assert q_heads % kv_heads == 0, f"{q_heads} query heads do not share {kv_heads} KV heads"
    device = q.device.type
    whole = all(tensor.is_contiguous() for tensor in (q, seen.k, seen.v, seen.mask))
    return Problem(
        rows=rows,
        q_heads=q_heads,
        kv_heads=kv_heads,
        dim=dim,
        context=context,
        dtype=str(q.dtype).removeprefix("torch."),
        cache=str(seen.k.dtype).removeprefix("torch."),
        strides=(k.stride(0), v.stride(0)),
        dense=whole and all(tensor.stride()[1:] == (dim, 1) for tensor in (k, v)),
        device=device,
        arch=arch_of(device, q.device.index),
    )

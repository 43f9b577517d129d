"""The numerical contract of norms, rotary positions and cache write, in FP64 with the roundings between them.

The norm of a head is rounded to the dtype of the projection. Of its first R values, x_i and x_{i + R/2} turn by the
angle of position and i: x cos + (-x_{i + R/2}, x_i) sin; the result is rounded to that dtype. What is stored is rounded
once more, to the cache's dtype; E4M3 saturates at 448.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.norm.reference import rms
from kernels.rotary import storing

if TYPE_CHECKING:
    import torch

    from kernels.rotary.problem import Heads, Store, Table


def turned(x: torch.Tensor, table: Table) -> torch.Tensor:
    """`x` [.., T, H, D] with its first R values rotated, in FP64."""
    cos, sin = (part.double() for part in table)
    size = cos.shape[-1]
    head, out = x[..., :size].double(), x.double()
    low, high = head.chunk(2, -1)
    half = size // 2
    out[..., :half] = low * cos[..., :half] - high * sin[..., :half]
    out[..., half:size] = high * cos[..., half:] + low * sin[..., half:]
    return out


def rotary(
    qkv: torch.Tensor, heads: Heads, table: Table, store: Store | None = None
) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """FP64 q, k, v; with a store k and v hold values of its dtype. Nothing is written."""
    q, k, v = (part.unflatten(-1, (-1, heads.dim)) for part in qkv.split(heads.widths, -1))
    if heads.q_heads:
        q = q.unflatten(-2, (heads.q_heads, 1 + heads.gated))[..., 0, :]
        q = turned(rms(q, heads.q_scale, heads.eps).to(qkv.dtype), table)
    k = turned(rms(k, heads.k_scale, heads.eps).to(qkv.dtype), table)
    if store is not None:
        k, v = (storing.encode(x.to(qkv.dtype), store.k_pages.dtype).double() for x in (k, v))
    return (q if heads.q_heads else None), k.double(), v.double()

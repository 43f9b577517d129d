"""The default: torch's RMSNorm, rotations, casts and index copies; differentiable without a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.norm.separate import rms_norm
from kernels.registry import Bound, Refusal, Schedule
from kernels.rotary import storing
from kernels.rotary.problem import Heads, Problem, Store, Table

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def rotated(x: torch.Tensor, table: Table) -> torch.Tensor:
    """`x` [.., T, H, D] with its first values rotated, in FP32 and rounded once to its dtype."""
    import torch  # on first use, so that listing schedules does not load it

    cos, sin = table
    size = cos.shape[-1]
    head = x[..., :size].float()
    low, high = head.chunk(2, -1)
    turned = (head * cos + torch.cat((-high, low), -1) * sin).to(x.dtype)
    return turned if size == x.shape[-1] else torch.cat((turned, x[..., size:]), -1)


def run(
    qkv: torch.Tensor, heads: Heads, table: Table, store: Store | None = None
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    q, k, v = (part.unflatten(-1, (-1, heads.dim)) for part in qkv.split(heads.widths, -1))
    if heads.gated:
        q = q.unflatten(-2, (heads.q_heads, 2))[..., 0, :]
    q = rotated(rms_norm(q, heads.q_scale, heads.eps), table) if heads.q_heads else None
    k = rotated(rms_norm(k, heads.k_scale, heads.eps), table)
    if store is None:
        return q, k, v
    storing.write(store, k, v)
    return q, None, None


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(
        rel_l2=8e-3,
        float32=1e-5,
        statement="FP32 squares in torch's order; norm, rotation and stored value rounded each",
    ),
    guard=guard,
    run=run,
    summary="torch: norms, rotations, casts and cache writes",
)

"""The default block attention: context and block side by side, torch's scaled dot product attention; differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.block_attention.problem import Problem, Seen
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(q: torch.Tensor, seen: Seen, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    import torch  # on first use, so that listing schedules does not load it
    from torch.nn.functional import scaled_dot_product_attention

    keys, values = torch.cat((seen.k.to(k.dtype), k)), torch.cat((seen.v.to(v.dtype), v))
    operands = (x.transpose(0, 1)[None] for x in (q, keys, values))
    shared = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(*operands, attn_mask=seen.mask, scale=scale, enable_gqa=shared)[0].transpose(
        0, 1
    )


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(rel_l2=8e-3, float32=1e-5, statement="torch's scaled dot product attention, whichever it chooses"),
    guard=guard,
    run=run,
    summary="torch: context and block joined, scaled dot product attention",
)

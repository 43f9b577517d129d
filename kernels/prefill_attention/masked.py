"""The default: torch's own choice among its attentions. A first chunk is causal, a later one goes by a mask.

1024 query rows at a time, so that the mask stays small at long contexts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.prefill_attention.problem import Problem
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

ROWS = 1024


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float) -> torch.Tensor:
    """`q` [T, Hq, D] over `k`, `v` [L, Hkv, D]; without a mask row t sees keys 0 to t."""
    from torch.nn.functional import scaled_dot_product_attention  # on first use: listing schedules loads no torch

    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    out = scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, scale=scale, enable_gqa=grouped)
    return out[0].transpose(0, 1)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    import torch  # on first use, so that listing schedules does not load it

    if len(q) == len(k):
        return sdpa(q, k, v, None, scale)
    past, parts = len(k) - len(q), []
    for first in range(0, len(q), ROWS):
        rows = q[first : first + ROWS]
        end = past + first + len(rows)
        queries = torch.arange(past + first, end, device=q.device)
        mask = torch.arange(end, device=q.device) <= queries[:, None]
        parts.append(sdpa(rows, k[:end], v[:end], mask, scale))
    return torch.cat(parts)


SCHEDULE = Schedule(
    name="masked",
    revision=1,
    contract=Bound(rel_l2=4e-3, float32=1e-5, statement="softmax and sums in FP32 in the library's order"),
    guard=guard,
    run=run,
    summary="torch's attention, a mask behind the first chunk",
)

"""The numerical contract of prompt attention, in FP64; a schedule sums in FP32 and rounds `out` once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """FP64 [T, Hq, D]."""
    import torch  # on first use, so that listing schedules does not load it

    groups = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(groups, 1) for x in (k, v))
    scores = torch.einsum("thd,lhd->htl", q.double(), keys) * scale
    hidden = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device).triu(len(k) - len(q) + 1)
    return torch.einsum("htl,lhd->thd", scores.masked_fill(hidden, float("-inf")).softmax(-1), values)

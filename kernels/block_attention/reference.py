"""The numerical contract of the block attention, in FP64: softmax over the visible keys of `scale * q · k`, times v."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernels.block_attention.problem import Seen


def attend(q: torch.Tensor, seen: Seen, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """FP64 [R, Hq, D]. Every row sees a key: itself."""
    import torch  # on first use, so that listing schedules does not load it

    group = q.shape[1] // k.shape[1]
    keys, values = (torch.cat(pair).double().repeat_interleave(group, 1) for pair in ((seen.k, k), (seen.v, v)))
    scores = torch.einsum("rhd,lhd->hrl", q.double(), keys) * scale
    weights = scores.masked_fill(~seen.mask, float("-inf")).softmax(-1)
    return torch.einsum("hrl,lhd->rhd", weights, values)

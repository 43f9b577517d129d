"""From FP32 logits to the distribution that a request samples from, on a compact sorted support.

Order of operations: temperature, min-p, top-k, top-p. Tokens are sorted by (logit descending, id ascending). Top-k
keeps every token that ties the k-th; the nucleus is the shortest sorted prefix whose mass reaches top-p, so a tie
at its boundary is split by id. A temperature of 0 is the point mass on the first token. Probabilities are FP64.
`+inf` shares all mass, `-inf` has none; NaN, or no finite token, is an error of the caller's. Knows no drafts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Cuts(Protocol):
    """What a law is made by; `kernels.accept.Rule` is one."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def greedy(self) -> bool: ...


@dataclass(frozen=True)
class Distribution:
    """Rows of `ids` [.., m] (int64) with probabilities `p` [.., m] (FP64), most probable first.

    `cut_tie` is a scalar flag: the support was taken from a shortlist that a tie at the k-th place overran, and has to
    be taken from the whole vocabulary instead.
    """

    ids: Tensor
    p: Tensor
    cut_tie: Tensor


def distribution(logits: Tensor, params: Cuts) -> Distribution:
    """The target's distribution for each row of whole FP32 `logits` [.., V]; the vocabulary is sorted."""
    values, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    return _distribution(values, ids, params, complete=True)


def shortlisted(values: Tensor, ids: Tensor, params: Cuts, vocab_size: int) -> Distribution:
    """The same from the sorted top `k + 1` of each row, the probe last, where `params` keep the top k or fewer."""
    return _distribution(values, ids, params, complete=values.shape[-1] == vocab_size)


def _distribution(values: Tensor, ids: Tensor, params: Cuts, complete: bool) -> Distribution:
    if params.greedy:
        first = ids[..., :1]
        return Distribution(first, torch.ones_like(first, dtype=torch.float64), values.new_zeros((), dtype=torch.bool))
    keep, tie = _top_k(values, params.top_k, complete)
    weight = _weights(values.double(), params.temperature)
    # Both cuts look at weights relative to the row's largest, so their order does not matter.
    weight = weight * (keep & (weight >= params.min_p))
    p = weight / weight.sum(-1, keepdim=True)
    if params.top_p < 1:
        p = p * (p.cumsum(-1) - p < params.top_p)
        p = p / p.sum(-1, keepdim=True)
    return Distribution(ids, p, tie)


def _top_k(values: Tensor, k: int, complete: bool) -> tuple[Tensor, Tensor]:
    """Which of the sorted `values` are at least the k-th, and whether a shortlist may have cut such a value off."""
    none = values.new_zeros((), dtype=torch.bool)
    if k == 0 or k >= values.shape[-1]:
        assert complete, f"top-k {k} is off or beyond the shortlist of {values.shape[-1]}"
        return torch.ones_like(values, dtype=torch.bool), none
    kth = values[..., k - 1 : k]
    return values >= kth, none if complete else (values[..., -1:] == kth).any()


def _weights(values: Tensor, temperature: float) -> Tensor:
    """exp((x - max) / T) per sorted row, with infinities: the largest value has weight 1 even where it is +inf.

    Divided last: by a temperature near 0 the values alone would overflow, and all be the largest.
    """
    top = values[..., :1]
    return ((values - top).masked_fill(values == top, 0.0) / temperature).exp()

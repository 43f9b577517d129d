"""The contract of selection: the first k + 1 entries of the stable descending sort of a row.

*Dense tie order* is that sort's: the larger value first, of equal values the smaller id, and -0.0 equals 0.0. Values
are copied, never computed, so every schedule agrees bit for bit. Entry k + 1 is the *probe*: where it equals entry k
the cut at k splits a tie, and a sampler whose top-k keeps ties must look at the whole row.
A row with a NaN has no order; the result is then unspecified, and the engine refuses such logits elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.selection.problem import Candidates

if TYPE_CHECKING:
    import torch


def choose(logits: torch.Tensor, k: int) -> Candidates:
    """The k best of each row of `logits` [R, V], and the probe."""
    values, ids = logits.sort(dim=-1, descending=True, stable=True)
    return Candidates(values[:, : k + 1].contiguous(), ids[:, : k + 1].contiguous())

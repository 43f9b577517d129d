"""What to do where the cut at k splits a tie: look at that row's whole vocabulary, and at no other row's.

The host reads `Candidates` anyway in order to sample, 12 bytes an entry; `split_rows` decides from that copy, so a
block without a split tie costs neither a copy of the vocabulary nor another wait for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.selection.problem import Candidates

if TYPE_CHECKING:
    import torch


def split_rows(candidates: Candidates) -> list[int]:
    """Rows whose probe equals their last candidate. Meant for candidates already on the host."""
    last, probe = candidates.values[:, -2], candidates.values[:, -1]
    return [row for row, tied in enumerate((last == probe).tolist()) if tied]


def support(row: torch.Tensor, threshold: float) -> Candidates:
    """Everything in one `row` [V] of logits that is at least `threshold`, in dense tie order, as one row."""
    ids = (row >= threshold).nonzero()[:, 0]
    values, order = row[ids].sort(descending=True, stable=True)
    return Candidates(values[None], ids[order][None])

"""The contract of a shortlist: the largest FP64 logits of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernels.shortlist.table import Table


def largest(x: torch.Tensor, table: Table, wanted: int) -> torch.Tensor:
    """FP64 [M, wanted] of `x` [M, K], in descending order."""
    import torch  # on first use, so that listing schedules does not load it

    logits = torch.cat([x.double() @ rows.double().T for rows in table.weight.split(8192)], -1)
    return logits.topk(wanted, -1).values

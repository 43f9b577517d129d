"""The default selection: torch's top-k over one integer key per logit, unique within its row.

A key holds the bits of the logit, mapped so that integers order as the floats do, above the distance of its id from the
end of the row. So the larger key is the larger logit or, of equal ones, the smaller id: dense tie order without a sort
of the vocabulary. Adding 0.0 makes -0.0 equal 0.0; values are gathered from the logits themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.registry import Bitwise, Refusal, Schedule
from kernels.selection.problem import Candidates, Problem

if TYPE_CHECKING:
    import torch

# Above an id of 32 bits.
LOW = 1 << 32


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(logits: torch.Tensor, k: int) -> Candidates:
    """The k best of each row of FP32 `logits` [R, V] and the probe, in dense tie order."""
    import torch  # on first use, so that listing schedules does not load it

    last = logits.shape[1] - 1
    bits = (logits + 0.0).view(torch.int32)
    # Of a negative float all bits but the sign are turned over: a larger magnitude is a smaller number.
    ordered = bits ^ (bits >> 31).bitwise_and_(0x7FFFFFFF)
    keys = ordered.long().mul_(LOW).add_(torch.arange(last, -1, -1, device=logits.device))
    ids = last - keys.topk(k + 1, -1).values.bitwise_and_(LOW - 1)
    return Candidates(logits.gather(-1, ids), ids)


SCHEDULE = Schedule(
    name="keys",
    revision=1,
    contract=Bitwise(parent="sort"),
    guard=guard,
    run=run,
    summary="torch, top-k of (logit, id) keys",
)

"""Linear projection `y = x · wᵀ` of many rows, as a prompt or a training step has them.

The problem, the contract and `wide` are `projection`'s; beyond `MOST_ROWS` rows its schedules for verification end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.prefill_projection import decoded
from kernels.projection import Problem, dense, problem_of, reference
from kernels.registry import Op

if TYPE_CHECKING:
    import torch

__all__ = ["MOST_ROWS", "OP", "Problem", "problem_of", "takes"]

MOST_ROWS = 16  # of verification

OP = Op(
    name="prefill_projection",
    reference=reference.project,
    schedules=(dense.SCHEDULE, decoded.SCHEDULE),
    default="dense",
    preferred=("decoded",),
)


def takes(rows: torch.Tensor) -> bool:
    """Whether `rows` [M, K] are more than a verification has."""
    return rows.shape[0] > MOST_ROWS

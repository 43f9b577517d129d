"""Gated projection of many rows, as a prompt or a training step has them: `gated`'s problem and contract.

`run(x [M, K], weight [2 I, K], project) -> y [M, I]`; `project(x, weight)` makes gates and ups.
"""

from __future__ import annotations

from kernels.gated import Problem, problem_of, reference, separate
from kernels.prefill_gated import product
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="prefill_gated",
    reference=reference.project,
    schedules=(separate.SCHEDULE, product.SCHEDULE),
    default="separate",
    preferred=("product",),
)

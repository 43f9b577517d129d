"""Attention's output gate: `x * sigmoid(gate)`, both rounded as operations of their own round them.

`run(x [.., H, D], gate [.., H, D]) -> y [.., H * D]` in the dtype of x; the gate may be a view into a wider projection.
"""

from __future__ import annotations

from kernels.output_gate import cuda, reference, separate
from kernels.output_gate.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="output_gate",
    reference=reference.gate,
    schedules=(separate.SCHEDULE, cuda.SCHEDULE),
    default="separate",
)

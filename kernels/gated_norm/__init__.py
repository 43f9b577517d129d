"""GatedDeltaNet's norm: `rms_norm(x) * silu(gate)` head by head.

`run(x [.., H, D], gate [.., H * D], scale FP32 [D], eps) -> y [.., H * D]` in the dtype of x.
"""

from __future__ import annotations

from kernels.gated_norm import cpu, cuda, reference, separate
from kernels.gated_norm.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="gated_norm",
    reference=reference.gated_norm,
    schedules=(separate.SCHEDULE, cpu.SCHEDULE, cuda.SCHEDULE),
    default="separate",
)

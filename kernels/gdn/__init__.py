"""Gated DeltaNet verification: convolution and recurrence of one to eight rows of one request, a state kept per row.

    run(qkv [R, C], a [R, Hv], b [R, Hv], layer, state) -> out [R, Hv, Dv] in the dtype of qkv

qkv, a and b may be slices of one wider projection (only their last axis is contiguous). `state` is written in place.
"""

from __future__ import annotations

from kernels.gdn import cpu, cuda, joint, reference, sequential
from kernels.gdn.problem import Layer, Problem, State, problem_of
from kernels.registry import Op

__all__ = ["OP", "Layer", "Problem", "State", "problem_of"]

OP = Op(
    name="gdn",
    reference=reference.verify,
    schedules=(sequential.SCHEDULE, cpu.BV8, cpu.BV2, cpu.BV32, *cuda.SCHEDULES, *joint.SCHEDULES),
    default="sequential",
)

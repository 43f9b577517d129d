"""The drafter's grouped dynamic convolution over a block of positions.

`run(x [.., B, H], dynamic [.., B, taps, groups], base [taps, H]) -> y [.., B, H]`: row b is the sum over taps t of
`(base[t] + dynamic[b, t, group]) * x[b - t]`; rows before the block's first are zeros.
"""

from __future__ import annotations

from kernels.block_conv import cuda, reference, separate
from kernels.block_conv.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="block_conv",
    reference=reference.convolve,
    schedules=(separate.SCHEDULE, cuda.SCHEDULE),
    default="separate",
)

"""Gated DeltaNet over a chunk of a prompt: convolution and recurrence of many rows, one state in, one state out.

    run(qkv [T, C], a [T, Hv], b [T, Hv], layer, history [W - 1, C], before [Hv, Dk, Dv])
        -> (out [T, Hv, Dv] in the dtype of qkv, after [Hv, Dk, Dv])

qkv, a and b may be slices of one wider projection. `history` are the raw convolution inputs before the chunk, zeros at
the beginning of a prompt, as is `before`, the FP32 state. Nothing is written in place.
"""

from __future__ import annotations

from kernels.prefill_gdn import chunked, flash_linear, reference
from kernels.prefill_gdn.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="prefill_gdn",
    reference=reference.prefill,
    schedules=(chunked.SCHEDULE, flash_linear.SCHEDULE),
    default="chunked",
    preferred=("fla",),
)

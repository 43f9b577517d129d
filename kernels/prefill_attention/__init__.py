"""Full attention of a chunk of a prompt: many rows, each over every key up to its own.

`run(q [T, Hq, D], k [L, Hkv, D], v [L, Hkv, D], scale) -> out [T, Hq, D]`: row t sees keys 0 to L - T + t.
"""

from __future__ import annotations

from kernels.prefill_attention import flash, masked, reference
from kernels.prefill_attention.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "problem_of"]

OP = Op(
    name="prefill_attention",
    reference=reference.attention,
    schedules=(masked.SCHEDULE, flash.FLASH, flash.CUDNN),
    default="masked",
    preferred=("cudnn", "flash"),
)

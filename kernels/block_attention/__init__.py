"""The drafter's attention: a block's rows over its context and over themselves, under one mask for all heads.

`run(q [R, Hq, D], seen, k, v [R, Hkv, D], scale) -> out [R, Hq, D]` in the dtype of q; `seen` holds the context's K and
V [L, Hkv, D] and the mask [R, L + R], true where a row sees a key of the context or, behind those, of the block.
"""

from __future__ import annotations

from kernels.block_attention import cuda, reference, separate
from kernels.block_attention.problem import Problem, Seen, problem_of
from kernels.registry import Op

__all__ = ["OP", "Problem", "Seen", "problem_of"]

OP = Op(
    name="block_attention",
    reference=reference.attend,
    schedules=(separate.SCHEDULE, cuda.SCHEDULE),
    default="separate",
)

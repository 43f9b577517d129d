"""GDN verification on CUDA in one launch: convolution and recurrence in one kernel, over tiles of value columns.

`csrc/gdn/fused.cu` states the order of additions, which is not that of the two launches of `kernels.gdn.cuda`. A
candidate: an earlier form passed its checks but was slower; this one, with the loads in flight together, has not run.
"""

from __future__ import annotations

from kernels.build import BuildSpec
from kernels.gdn import cuda
from kernels.gdn.problem import Problem
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

ACTIVATIONS, MAX_SLOTS = ("float16", "bfloat16"), 32


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            cuda.guard(problem),
            refuse_unless(problem.table_slots <= MAX_SLOTS, f"{problem.table_slots} slots; at most {MAX_SLOTS}"),
            refuse_unless(problem.dtype in ACTIVATIONS, f"qkv is {problem.dtype}; one of {', '.join(ACTIVATIONS)}"),
            refuse_unless(
                problem.weight_dtype in (problem.dtype, "float32"),
                f"weights are {problem.weight_dtype}; {problem.dtype} or float32",
            ),
        )
    )


def schedule(tile: int, contract: Bound | Bitwise, summary: str) -> Schedule:
    name = f"fused-bv{tile}"
    spec = BuildSpec(
        operator="gdn",
        schedule=name,
        revision=1,
        language="cuda",
        sources=("gdn/fused.cu",),
        headers=("include/abi.h", "include/sm90.cuh"),
        flags=(f"-DGDN_TILE={tile}",),
    )
    return Schedule(name, 1, contract, guard, cuda.runner(spec), spec, summary)


BOUND = Bound(
    rel_l2=2e-3,
    statement="FP32 state, gates and sums: 16 chunks of 8 keys, balanced tree; one rounding of out",
    parent="bv8",
)
SCHEDULES = (
    schedule(32, BOUND, "CUDA, one launch, four warps per 32 value columns; a candidate that has not run yet"),
    schedule(16, Bitwise(parent="fused-bv32"), "CUDA, one launch, one warp per 16 value columns; has not run yet"),
)

"""Verify attention: one to eight query rows of one request against a paged KV cache.

    run(q [R, Hq, D], k_pages, v_pages [pages, page_size, Hkv, D], page_table int32 [n],
        row_lengths int32 [R], scale) -> out [R, Hq, D] in the dtype of q

Tables and lengths live on the device of q. K and V are float32, float16, bfloat16 or float8_e4m3fn.
"""

from __future__ import annotations

from kernels.attention import cpu, cuda, gathered, reference
from kernels.attention.problem import Problem, problem_of
from kernels.registry import Op

__all__ = ["BY_TABLE", "OP", "Problem", "problem_of"]

BY_TABLE = frozenset({"grouped-cluster"})
"""Schedules that do otherwise where the page table names few tokens, so that it is worth showing them a short one."""

OP = Op(
    name="attention",
    reference=reference.attend,
    schedules=(gathered.SCHEDULE, cpu.SCALAR, cpu.GROUPED, *cuda.SCHEDULES),
    default="gathered",
)

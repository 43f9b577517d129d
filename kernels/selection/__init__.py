"""Selection: the k largest logits of each row in dense tie order, and the next one as a probe.

run(logits [R, V] FP32, k) -> Candidates(values FP32 [R, k + 1], ids int64 [R, k + 1])
"""

from __future__ import annotations

from kernels.registry import Op
from kernels.selection import cpu, cuda, keys, reference, sort
from kernels.selection.problem import Candidates, Problem, problem_of

__all__ = ["OP", "Candidates", "Problem", "problem_of"]

OP = Op(
    name="selection",
    reference=reference.choose,
    schedules=(keys.SCHEDULE, sort.SCHEDULE, cpu.SCAN, cpu.SCAN_32, *cuda.SCHEDULES),
    default="keys",
)

"""Linear projection `y = x · wᵀ` of a few rows against a dense, NVFP4 or FP8 weight.

`run(x [M, K], weight, wide=False) -> y [M, N]`, `weight` one of `weights.Weight`; y in the dtype of x, or
FP32 sums where `wide`: a rank's share of a product, which is rounded when the shares are added.
"""

from __future__ import annotations

from kernels.projection import columns, cpu, cuda, dense, fp8_cuda, reference
from kernels.projection.fp8 import Fp8Weight
from kernels.projection.nvfp4 import Nvfp4Weight
from kernels.projection.problem import Problem, problem_of
from kernels.projection.weights import DenseWeight, Weight
from kernels.registry import Op

__all__ = ["OP", "DenseWeight", "Fp8Weight", "Nvfp4Weight", "Problem", "Weight", "problem_of"]

OP = Op(
    name="projection",
    reference=reference.project,
    schedules=(
        dense.SCHEDULE,
        columns.COLUMNS_32,
        columns.COLUMNS_128,
        cpu.DOT,
        cpu.TILE,
        *cuda.SCHEDULES,
        fp8_cuda.SCHEDULE,
    ),
    default="dense",
)

"""FP8 projection on Hopper: weights streamed through shared memory into the tensor cores, as 4-bit ones are.

`csrc/projection/nvfp4_stream.cu` states the order of additions, `fp8_packing.py` the streamed layout, which is made on
a weight's first use and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_void_p
from typing import TYPE_CHECKING

from kernels.native.machine import HOPPER
from kernels.native.specification import BuildSpec
from kernels.projection import cuda, fp8_packing
from kernels.projection.fp8 import Fp8Weight
from kernels.projection.packing import UNIT_K
from kernels.projection.problem import Problem
from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

ENTRY = (*(c_void_p,) * 4, *(c_int,) * 6, c_void_p, *(c_int,) * 3, c_void_p)
FLAGS = ("-DSTREAM_E4M3=1", "-DSTREAM_EXCHANGE=1")


def guard(problem: Problem) -> Refusal | None:
    stride = problem.row_stride or problem.k
    return first_refusal(
        (
            refuse_unless(problem.weight_format == "fp8", f"weight format {problem.weight_format!r}; only 'fp8'"),
            refuse_unless(problem.dtype == "float16", f"x is {problem.dtype}; only float16"),
            refuse_unless(1 <= problem.m <= cuda.MAX_ROWS, f"{problem.m} rows; 1 to {cuda.MAX_ROWS}"),
            refuse_unless(problem.k % UNIT_K == 0, f"K = {problem.k}; a multiple of {UNIT_K}"),
            refuse_unless(stride % 8 == 0, f"rows of x {stride} elements apart; a multiple of 8"),
        )
    )


def runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, weight: Fp8Weight, wide: bool = False) -> torch.Tensor:
        units = weight.layout("fp8-stream", fp8_packing.layout)
        return launch(spec, x, units, weight.n, weight.scales, cuda.WIDE if wide else cuda.PLAIN)

    return run


def launch(
    spec: BuildSpec, x: torch.Tensor, units: torch.Tensor, n: int, scales: torch.Tensor, form: int
) -> torch.Tensor:
    return cuda.launch(spec, x, units, n, scales.data_ptr(), form, 1, entry=ENTRY)


BUILD = cuda.stream_spec("fp8-stream", 6, *FLAGS, "-DSTREAM_ALONE=3")
SCHEDULE = Schedule(
    name="fp8-stream",
    revision=1,
    contract=Bound(
        rel_l2=1e-3,
        float32=1e-5,
        statement="exact FP16 products, FP32 tensor-core sums, splits of K in order, the row's scale, one rounding",
        parent="dense",
    ),
    guard=guard,
    run=runner(BUILD),
    machine=HOPPER,
    build=BUILD,
    summary="Hopper, E4M3 weights streamed, one block per multiprocessor",
)

"""A 4-bit weight decoded once a call into 16 bits, in one launch, and torch's GEMM on it.

Code times scale is exact in 16 bits; the division by the global scale is the GEMM's factor, applied to its FP32 sums
before the one rounding, or to the sums themselves where those are asked for. The decoded weight lives for the call: its
memory is torch's to use again.
"""

from __future__ import annotations

from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.native import building
from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import PORTABLE, BuildSpec
from kernels.projection.nvfp4 import Nvfp4Weight
from kernels.projection.problem import Problem
from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

TYPES = {"float16": 0, "bfloat16": 1}
MIN_ROWS = 17
ENTRY = (c_void_p, c_void_p, c_void_p, c_int64, c_int, c_void_p)
BUILD = BuildSpec(
    operator="prefill_projection",
    schedule="decoded",
    revision=1,
    language="cuda",
    sources=("prefill_projection/decoded.cu",),
    also=PORTABLE,
)


def guard(problem: Problem) -> Refusal | None:
    lacking = building.lacking(BUILD)
    return first_refusal(
        (
            refuse_unless(problem.weight_format == "nvfp4", f"weight format {problem.weight_format!r}; only 'nvfp4'"),
            refuse_unless(problem.dtype in TYPES, f"x is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(problem.m >= MIN_ROWS, f"{problem.m} rows; at least {MIN_ROWS}"),
            Refusal(lacking) if lacking else None,
        )
    )


def decode(weight: Nvfp4Weight, like: torch.Tensor) -> torch.Tensor:
    """Code times scale [N, K] in the dtype of `like`, exact, without the weight's padding."""
    w = like.new_empty(weight.n, weight.k)
    entry = native(BUILD, cuda_arch(like.device.index)).entry("run", ENTRY)
    operands = (weight.packed.data_ptr(), weight.scales.data_ptr(), w.data_ptr())
    call(entry, *operands, w.numel() // 8, TYPES[str(like.dtype).removeprefix("torch.")], stream_of(like))
    return w


def run(x: torch.Tensor, weight: Nvfp4Weight, wide: bool = False) -> torch.Tensor:
    import torch  # on first use, so that listing schedules does not load it

    if wide:
        return torch.mm(x, decode(weight, x).T, out_dtype=torch.float32).div_(weight.global_scale)
    return torch.addmm(x.new_empty(1), x, decode(weight, x).T, beta=0, alpha=1 / weight.global_scale)


SCHEDULE = Schedule(
    name="decoded",
    revision=1,
    contract=Bound(rel_l2=4e-3, statement="exact 16-bit products, FP32 sums in the library's order, one rounding"),
    guard=guard,
    run=run,
    machine=HOPPER,
    build=BUILD,
    summary="CUDA: 4-bit weights decoded in one launch, then torch's GEMM",
)

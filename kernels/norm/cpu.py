"""Residual norm on the CPU in C++; `csrc/norm/rows.cpp` states the order of the sum of squares."""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.native.library import call, native
from kernels.native.machine import X86_64_V3, cpu_arch
from kernels.native.specification import BuildSpec
from kernels.norm.problem import Problem
from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

FORMATS = {"float32": 0, "bfloat16": 1, "float16": 2}
MAX_ROWS = 16
ENTRY = (*(c_void_p,) * 2, c_int64, c_int64, *(c_void_p,) * 3, c_int64, c_int64, c_int, c_float)


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(problem.dtype in FORMATS, f"x is {problem.dtype}; one of {', '.join(FORMATS)}"),
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
        )
    )


def run(
    x: torch.Tensor, delta: torch.Tensor | None, scale: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    first = x.float() if x.stride(1) == 1 else x.float().contiguous()
    second = first if delta is None else delta.float() if delta.stride(1) == 1 else delta.float().contiguous()
    y = first.new_empty(x.shape)
    s = first.new_empty(x.shape)
    operands = (first.data_ptr(), 0 if delta is None else second.data_ptr(), first.stride(0), second.stride(0))
    outputs = (scale.data_ptr(), s.data_ptr(), y.data_ptr(), *x.shape)
    form = FORMATS[str(x.dtype).removeprefix("torch.")]
    call(native(BUILD, cpu_arch()).entry("run", ENTRY), *operands, *outputs, form, eps)
    return x if delta is None else s.to(x.dtype), y.to(x.dtype)


BUILD = BuildSpec(
    operator="norm",
    schedule="cpu-rows",
    revision=1,
    language="c++",
    sources=("norm/rows.cpp",),
    headers=("include/abi.h", "include/lanes.h", "include/rounding.h"),
)
SCHEDULE = Schedule(
    name="cpu-rows",
    revision=1,
    contract=Bound(
        rel_l2=4e-3, float32=5e-7, statement="the sum rounded; eight FP32 FMA lanes over ascending values, fixed tree"
    ),
    guard=guard,
    run=run,
    machine=X86_64_V3,
    build=BUILD,
    summary="C++, sum and norm of a row in one pass each",
)

"""Gated norm on the CPU in C++; `csrc/gated_norm/heads.cpp` states the order of the sum of squares."""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.gated_norm.problem import Problem
from kernels.native.library import call, native
from kernels.native.machine import X86_64_V3, cpu_arch
from kernels.native.specification import BuildSpec
from kernels.norm.cpu import FORMATS, MAX_ROWS
from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

ENTRY = (*(c_void_p,) * 2, c_int64, *(c_void_p,) * 2, *(c_int64,) * 3, c_int, c_float)


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(problem.dtype in FORMATS, f"x is {problem.dtype}; one of {', '.join(FORMATS)}"),
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
            refuse_unless(problem.axes == 1, f"{problem.axes} axes before the heads; only 1"),
        )
    )


def run(x: torch.Tensor, gate: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    wide, gates = x.float().contiguous(), gate.float() if gate.stride(1) == 1 else gate.float().contiguous()
    y = wide.new_empty(gate.shape)
    pointers = (wide.data_ptr(), gates.data_ptr(), gates.stride(0), scale.data_ptr(), y.data_ptr())
    form = FORMATS[str(x.dtype).removeprefix("torch.")]
    call(native(BUILD, cpu_arch()).entry("run", ENTRY), *pointers, *x.shape, form, eps)
    return y.to(x.dtype)


BUILD = BuildSpec(
    operator="gated_norm",
    schedule="cpu-heads",
    revision=1,
    language="c++",
    sources=("gated_norm/heads.cpp",),
    headers=("include/abi.h", "include/exp8.h", "include/lanes.h", "include/rounding.h"),
)
SCHEDULE = Schedule(
    name="cpu-heads",
    revision=1,
    contract=Bound(
        rel_l2=4e-3, float32=5e-7, statement="eight FP32 FMA lanes over ascending values, fixed tree; the norm rounded"
    ),
    guard=guard,
    run=run,
    machine=X86_64_V3,
    build=BUILD,
    summary="C++, norm, SiLU and product of a head in one pass",
)

"""Gated projection on the CPU in C++: gate, up, SiLU and product of an output while its sums are in registers.

`csrc/gated/columns.cpp` states the order of additions and the roundings; neither depends on the tile or on the number
of rows, so the schedules agree bit for bit, and so do verification of eight rows and decoding of one.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from kernels.native.library import call, native
from kernels.native.machine import X86_64_V3, cpu_arch
from kernels.native.specification import BuildSpec
from kernels.projection import cpu
from kernels.projection.cpu import FORMATS
from kernels.projection.fp8 import Fp8Weight
from kernels.projection.problem import Problem
from kernels.projection.weights import DenseWeight, Weight
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

X, OUT = (c_void_p, c_int64, c_int), (c_void_p, c_int64, c_int64, c_int64, c_int64)
DENSE = (*X, c_void_p, c_int64, c_int, *OUT)
NVFP4 = (*X, c_void_p, c_void_p, c_float, *OUT)
FP8 = (*X, c_void_p, c_int64, c_void_p, *OUT)


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            cpu.guard(problem),
            refuse_unless(problem.n % 2 == 0, f"{problem.n} rows are no gates and as many ups"),
        )
    )


def runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    """`run(x, weight)` through the library of `spec`."""

    def run(x: torch.Tensor, weight: Weight, project: Any = None) -> torch.Tensor:
        rows = x.float() if x.stride(1) == 1 else x.float().contiguous()
        half = weight.n // 2
        out = rows.new_empty(x.shape[0], half)
        library, head = native(spec, cpu_arch()), (rows.data_ptr(), rows.stride(0), form_of(x))
        tail = (out.data_ptr(), half, x.shape[0], half, weight.k)
        if isinstance(weight, DenseWeight):
            w = weight.w
            call(library.entry("dense", DENSE), *head, w.data_ptr(), w.stride(0), form_of(w), *tail)
        elif isinstance(weight, Fp8Weight):
            codes = (weight.codes.data_ptr(), weight.codes.stride(0), weight.scales.data_ptr())
            call(library.entry("fp8", FP8), *head, *codes, *tail)
        else:
            codes = (weight.packed.data_ptr(), weight.scales.data_ptr(), weight.global_scale)
            call(library.entry("nvfp4", NVFP4), *head, *codes, *tail)
        return out.to(x.dtype)

    return run


def form_of(tensor: torch.Tensor) -> int:
    return FORMATS[str(tensor.dtype).removeprefix("torch.")]


def schedule(name: str, rows: int, paired: bool, contract: Bound | Bitwise, summary: str) -> Schedule:
    build = BuildSpec(
        operator="gated",
        schedule=name,
        revision=1,
        language="c++",
        sources=("gated/columns.cpp",),
        headers=("include/abi.h", "include/columns.h", "include/exp8.h", "include/lanes.h", "include/rounding.h"),
        flags=(f"-DROWS={rows}", f"-DPAIRED={int(paired)}"),
    )
    return Schedule(name, 1, contract, guard, runner(build), X86_64_V3, build, summary)


BOUND = Bound(
    rel_l2=8e-3,
    float32=5e-7,
    statement="eight FP32 FMA lanes over ascending K, fixed tree; gate, up, SiLU and product rounded each",
)
SCHEDULES = (
    schedule("cpu-dot", 1, False, BOUND, "C++, one output at a time, its gate before its up"),
    schedule("cpu-tile", 8, False, Bitwise("cpu-dot"), "C++, up to eight rows of a gate in registers, then of its up"),
    schedule("cpu-pair", 4, True, Bitwise("cpu-dot"), "C++, up to four rows of a gate and its up side by side"),
)

"""Projection on the CPU in C++: the same order of additions, one output at a time or a register tile of them.

`csrc/include/columns.h` states the order. It does not depend on the tile or on the number of rows, so the two
schedules agree bit for bit, and so do verification of eight rows and decoding of one.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.native.library import call, native
from kernels.native.machine import X86_64_V3, cpu_arch
from kernels.native.specification import BuildSpec
from kernels.projection.fp8 import Fp8Weight
from kernels.projection.nvfp4 import Nvfp4Weight
from kernels.projection.problem import Problem
from kernels.projection.weights import DenseWeight, Weight
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

FORMATS = {"float32": 0, "bfloat16": 1, "float16": 2}
MAX_ROWS = 16
DENSE = (c_void_p, c_int64, c_void_p, c_int64, c_int, c_void_p, c_int64, c_int64, c_int64, c_int64)
NVFP4 = (c_void_p, c_int64, c_void_p, c_void_p, c_float, c_void_p, c_int64, c_int64, c_int64, c_int64)
FP8 = (c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64)


def guard(problem: Problem) -> Refusal | None:
    weights = (*FORMATS, Nvfp4Weight.dtype, Fp8Weight.dtype)
    return first_refusal(
        (
            refuse_unless(problem.dtype in FORMATS, f"x is {problem.dtype}; one of {', '.join(FORMATS)}"),
            refuse_unless(problem.weight_dtype in weights, f"weight is {problem.weight_dtype}; {', '.join(weights)}"),
            refuse_unless(1 <= problem.m <= MAX_ROWS, f"{problem.m} rows; 1 to {MAX_ROWS}"),
        )
    )


def runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    """`run(x, weight, wide)` through the library of `spec`."""

    def run(x: torch.Tensor, weight: Weight, wide: bool = False) -> torch.Tensor:
        rows = x.float() if x.stride(1) == 1 else x.float().contiguous()
        out = rows.new_empty(x.shape[0], weight.n)
        library, head, tail = native(spec, cpu_arch()), (rows.data_ptr(), rows.stride(0)), (out.data_ptr(), weight.n)
        shape = (x.shape[0], weight.n, weight.k)
        if isinstance(weight, DenseWeight):
            w, form = weight.w, FORMATS[weight.dtype]
            call(library.entry("dense", DENSE), *head, w.data_ptr(), w.stride(0), form, *tail, *shape)
        elif isinstance(weight, Fp8Weight):
            codes = (weight.codes.data_ptr(), weight.codes.stride(0), weight.scales.data_ptr())
            call(library.entry("fp8", FP8), *head, *codes, *tail, *shape)
        else:
            codes = (weight.packed.data_ptr(), weight.scales.data_ptr(), weight.global_scale)
            call(library.entry("nvfp4", NVFP4), *head, *codes, *tail, *shape)
        return out if wide else out.to(x.dtype)

    return run


def spec(schedule: str, rows: int) -> BuildSpec:
    return BuildSpec(
        operator="projection",
        schedule=schedule,
        revision=1,
        language="c++",
        sources=("projection/columns.cpp",),
        headers=("include/abi.h", "include/columns.h", "include/lanes.h"),
        flags=(f"-DROWS={rows}",),
    )


DOT_BUILD, TILE_BUILD = spec("cpu-dot", rows=1), spec("cpu-tile", rows=8)

DOT = Schedule(
    name="cpu-dot",
    revision=1,
    contract=Bound(
        rel_l2=4e-3, float32=3e-6, statement="eight FP32 FMA lanes over ascending K, fixed tree, one rounding"
    ),
    guard=guard,
    run=runner(DOT_BUILD),
    machine=X86_64_V3,
    build=DOT_BUILD,
    summary="C++, one output at a time",
)
TILE = Schedule(
    name="cpu-tile",
    revision=1,
    contract=Bitwise(parent="cpu-dot"),
    guard=guard,
    run=runner(TILE_BUILD),
    machine=X86_64_V3,
    build=TILE_BUILD,
    summary="C++, up to eight rows of a column in registers",
)

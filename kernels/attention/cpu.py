"""Verify attention on the CPU in C++: one KV scan per row and head, or one for all of a KV head's rows and heads.

`csrc/attention/paged.cpp` states the order of operations. It is the same in both, so they agree bit for bit, and a
row's bytes do not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_double, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.attention.problem import Problem
from kernels.native.library import call, native
from kernels.native.machine import X86_64_V3, cpu_arch
from kernels.native.specification import BuildSpec
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

FORMATS = {"float32": 0, "bfloat16": 1, "float16": 2, "float8_e4m3fn": 3}
QUERIES = ("float32", "bfloat16", "float16")
MAX_DIM = 256


class Pages(Structure):
    _fields_ = (("base", c_void_p), ("page_stride", c_int64), ("token_stride", c_int64), ("head_stride", c_int64))


class Arguments(Structure):
    """Mirrors the struct of the same name in `csrc/attention/paged.cpp`."""

    _fields_ = (
        ("q", c_void_p), ("q_row_stride", c_int64), ("q_head_stride", c_int64), ("k", Pages), ("v", Pages),
        ("table", c_void_p), ("lengths", c_void_p), ("out", c_void_p), ("stats", c_void_p), ("format", c_int64),
        ("rows", c_int64), ("q_heads", c_int64), ("kv_heads", c_int64), ("dim", c_int64), ("page_size", c_int64),
        ("table_pages", c_int64), ("scale", c_double),
    )  # fmt: skip


def guard(problem: Problem) -> Refusal | None:
    unit = all(not strides or strides[-1] == 1 for strides in (problem.k_strides, problem.v_strides))
    return first_refusal(
        (
            refuse_unless(problem.q_dtype in QUERIES, f"q is {problem.q_dtype}; one of {', '.join(QUERIES)}"),
            refuse_unless(problem.kv_dtype in FORMATS, f"K and V are {problem.kv_dtype}; one of {', '.join(FORMATS)}"),
            refuse_unless(
                problem.head_dim % 8 == 0 and problem.head_dim <= MAX_DIM,
                f"head dimension {problem.head_dim}; a multiple of 8 up to {MAX_DIM}",
            ),
            refuse_unless(unit, "K or V whose last axis is not contiguous"),
        )
    )


def pages_of(pages: torch.Tensor) -> Pages:
    return Pages(pages.data_ptr(), *pages.stride()[:3])


def runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    """`run` through the library of `spec`."""

    def run(
        q: torch.Tensor,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        page_table: torch.Tensor,
        row_lengths: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        rows, q_heads, dim = q.shape
        wide = q.float().contiguous()
        table, lengths = page_table.int().contiguous(), row_lengths.int().contiguous()
        out, stats = wide.new_empty(rows, q_heads, dim), wide.new_empty(rows, q_heads, 2)
        arguments = Arguments(
            wide.data_ptr(), q_heads * dim, dim, pages_of(k_pages), pages_of(v_pages), table.data_ptr(),
            lengths.data_ptr(), out.data_ptr(), stats.data_ptr(), FORMATS[str(k_pages.dtype).removeprefix("torch.")],
            rows, q_heads, k_pages.shape[2], dim, k_pages.shape[1], table.shape[0], scale,
        )  # fmt: skip
        call(native(spec, cpu_arch()).entry("run", (POINTER(Arguments),)), byref(arguments))
        return out.to(q.dtype)

    return run


def spec(schedule: str, grouped: bool) -> BuildSpec:
    return BuildSpec(
        operator="attention",
        schedule=schedule,
        revision=1,
        language="c++",
        sources=("attention/paged.cpp",),
        headers=("include/abi.h", "include/exp8.h", "include/lanes.h"),
        flags=(f"-DGROUPED={int(grouped)}",),
    )


SCALAR_BUILD, GROUPED_BUILD = spec("cpu-scalar", grouped=False), spec("cpu-grouped", grouped=True)

SCALAR = Schedule(
    name="cpu-scalar",
    revision=1,
    contract=Bound(rel_l2=2e-3, float32=2e-6, statement="FP32, 32 keys an update, ascending keys, one rounding"),
    guard=guard,
    run=runner(SCALAR_BUILD),
    machine=X86_64_V3,
    build=SCALAR_BUILD,
    summary="C++, one KV scan per row and head",
)
GROUPED = Schedule(
    name="cpu-grouped",
    revision=1,
    contract=Bitwise(parent="cpu-scalar"),
    guard=guard,
    run=runner(GROUPED_BUILD),
    machine=X86_64_V3,
    build=GROUPED_BUILD,
    summary="C++, one KV scan for all rows and heads of a KV head",
)

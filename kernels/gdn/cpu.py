"""GDN verification on the CPU in C++, in tiles of 2, 8 or 32 value columns.

`csrc/gdn/recurrence.cpp` states the order of operations; value columns are independent chains, so every tile gives the
same bytes, and the wide one gives the processor more chains to overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.gdn.problem import Layer, Problem, State
from kernels.native.library import call, native
from kernels.native.machine import X86_64_V3, cpu_arch
from kernels.native.specification import BuildSpec
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

FORMATS = {"float32": 0, "bfloat16": 1, "float16": 2}
MAX_DIM, MAX_ROWS, MAX_WIDTH = 256, 16, 8


class Arguments(Structure):
    """Mirrors the struct of the same name in `csrc/gdn/recurrence.cpp`."""

    _fields_ = (
        ("qkv", c_void_p), ("a", c_void_p), ("b", c_void_p), ("qkv_stride", c_int64), ("a_stride", c_int64),
        ("b_stride", c_int64), ("conv_weight", c_void_p), ("a_log", c_void_p), ("dt_bias", c_void_p),
        ("window", c_void_p), ("pool", c_void_p), ("slot_table", c_void_p), ("selector", c_void_p), ("out", c_void_p),
        ("work", c_void_p), ("format", c_int64), ("rows", c_int64), ("key_heads", c_int64), ("value_heads", c_int64),
        ("key_dim", c_int64), ("value_dim", c_int64), ("width", c_int64), ("slots", c_int64),
    )  # fmt: skip


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(problem.dtype in FORMATS, f"qkv is {problem.dtype}; one of {', '.join(FORMATS)}"),
            refuse_unless(
                problem.weight_dtype in FORMATS,
                f"convolution weight is {problem.weight_dtype}; one of {', '.join(FORMATS)}",
            ),
            refuse_unless(
                problem.key_dim % 8 == 0 and problem.key_dim <= MAX_DIM,
                f"key dimension {problem.key_dim}; a multiple of 8 up to {MAX_DIM}",
            ),
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
            refuse_unless(problem.conv_width <= MAX_WIDTH, f"convolution width {problem.conv_width}; to {MAX_WIDTH}"),
        )
    )


def runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    """`run` through the library of `spec`."""

    def run(qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, state: State) -> torch.Tensor:
        (rows, channels), (_, value_heads, key_dim, value_dim) = qkv.shape, state.pool.shape
        key_heads = (channels - value_heads * value_dim) // (2 * key_dim)
        # Weights are exact in FP32.
        weight, a_log, dt_bias = layer.conv_weight.float().contiguous(), layer.a_log.float(), layer.dt_bias.float()
        out = qkv.new_empty(rows, value_heads, value_dim)
        work = state.pool.new_empty(rows * (channels + 2 * value_heads))
        arguments = Arguments(
            qkv.data_ptr(), a.data_ptr(), b.data_ptr(), qkv.stride(0), a.stride(0), b.stride(0), weight.data_ptr(),
            a_log.data_ptr(), dt_bias.data_ptr(), state.window.data_ptr(), state.pool.data_ptr(),
            state.slot_table.data_ptr(), state.selector.data_ptr(), out.data_ptr(), work.data_ptr(),
            FORMATS[str(qkv.dtype).removeprefix("torch.")], rows, key_heads, value_heads, key_dim, value_dim,
            weight.shape[1], state.slot_table.shape[0],
        )  # fmt: skip
        call(native(spec, cpu_arch()).entry("run", (POINTER(Arguments),)), byref(arguments))
        return out

    return run


def schedule(tile: int, parent: str | None) -> Schedule:
    name = f"cpu-bv{tile}"
    build = BuildSpec(
        operator="gdn",
        schedule=name,
        revision=2,
        language="c++",
        sources=("gdn/recurrence.cpp",),
        headers=("include/abi.h", "include/exp8.h", "include/lanes.h"),
        flags=(f"-DBV={tile}",),
    )
    bound = Bound(rel_l2=2e-3, float32=5e-7, statement="FP32 chains over ascending keys, FP64 gates, one rounding")
    return Schedule(
        name=name,
        revision=2,
        contract=Bitwise(parent) if parent else bound,
        guard=guard,
        run=runner(build),
        machine=X86_64_V3,
        build=build,
        summary=f"C++, {tile} value columns at a time",
    )


BV8 = schedule(8, None)
BV2 = schedule(2, "cpu-bv8")
BV32 = schedule(32, "cpu-bv8")

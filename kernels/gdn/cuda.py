"""GDN verification on CUDA: one kernel for the convolution, one for the recurrence, over tiles of value columns.

`csrc/gdn/tiled.cu` states the order of additions; it is the same for every tile, so the schedules agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import POINTER, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.gdn.problem import Layer, Problem, State
from kernels.native.device import stream_of, workspace
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import BuildSpec
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

TYPES = {"float16": 0, "bfloat16": 1, "float32": 2}
HEAD_DIM, CONV_WIDTH, MAX_ROWS = 128, 4, 8
HEADERS = ("include/abi.h", "include/gdn.cuh", "include/gdn_entry.cuh", "include/sm90.cuh")
ENTRY = (*(c_void_p,) * 12, POINTER(c_int64), POINTER(c_int), *(c_int,) * 4, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    dims = (problem.key_dim, problem.value_dim)
    return first_refusal(
        (
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
            refuse_unless(dims == (HEAD_DIM, HEAD_DIM), f"key and value dimensions {dims}; only {HEAD_DIM}"),
            refuse_unless(problem.conv_width == CONV_WIDTH, f"{problem.conv_width} taps; only {CONV_WIDTH}"),
            refuse_unless(problem.dtype in TYPES, f"qkv is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(
                problem.weight_dtype in TYPES, f"weights are {problem.weight_dtype}; one of {', '.join(TYPES)}"
            ),
        )
    )


def type_of(tensor: torch.Tensor) -> int:
    return TYPES[str(tensor.dtype).removeprefix("torch.")]


def runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    """`run` through the library of `spec`."""

    def run(qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, state: State) -> torch.Tensor:
        _, value_heads, key_dim, value_dim = state.pool.shape
        key_heads = (qkv.shape[1] - value_heads * value_dim) // (2 * key_dim)
        out = qkv.new_empty(qkv.shape[0], value_heads, value_dim)
        library = native(spec, cuda_arch(qkv.device.index))
        scratch = workspace(library, qkv.device, key_heads, value_heads)
        owned = (layer.conv_weight, layer.a_log, layer.dt_bias)
        tensors = (qkv, a, b, *owned, state.window, state.pool, state.slot_table, state.selector, out, scratch)
        strides = (c_int64 * 3)(qkv.stride(0), a.stride(0), b.stride(0))
        types = (c_int * 4)(type_of(qkv), *(type_of(tensor) for tensor in owned))
        shape = (qkv.shape[0], key_heads, value_heads, state.slot_table.shape[0])
        pointers = (tensor.data_ptr() for tensor in tensors)
        call(library.entry("run", ENTRY), *pointers, strides, types, *shape, stream_of(qkv))
        return out

    return run


def schedule(tile: int, contract: Bound | Bitwise, summary: str) -> Schedule:
    name = f"bv{tile}"
    spec = BuildSpec(
        operator="gdn",
        schedule=name,
        revision=1,
        language="cuda",
        sources=("gdn/tiled.cu",),
        headers=HEADERS,
        flags=(f"-DGDN_TILE={tile}",),
    )
    return Schedule(name, 1, contract, guard, runner(spec), HOPPER, spec, summary)


BOUND = Bound(
    rel_l2=2e-3, statement="FP32 state, gates and sums: 16 chunks of 8 keys, balanced tree; one rounding of out"
)
SCHEDULES = (
    schedule(8, BOUND, "CUDA, one warp per 8 value columns"),
    schedule(2, Bitwise(parent="bv8"), "CUDA, one warp per 2 value columns"),
    schedule(16, Bitwise(parent="bv8"), "CUDA, one warp per 16 value columns, 64-byte rows"),
    schedule(32, Bitwise(parent="bv8"), "CUDA, four warps per 32 value columns, 128-byte rows"),
)

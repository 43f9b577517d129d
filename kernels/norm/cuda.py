"""Residual norm on CUDA in one launch; a block has a row, and the kernel after it may start beside it.

`csrc/include/rms.cuh` states the order of the sum of squares. It is the order of torch's own RMSNorm, so that the bytes
are those of the separate operations: the gate compares them on the torch that is installed.
"""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import BuildSpec
from kernels.norm.problem import Problem
from kernels.registry import Bitwise, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

TYPES = {"float16": 0, "bfloat16": 1}
MAX_WIDTH = 8192
PIECE = 4  # values a thread loads at once
ENTRY = (*(c_void_p,) * 5, c_int64, c_int64, c_int, c_int, c_int, c_float, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    strides = problem.row_strides or (problem.width, problem.width)
    return first_refusal(
        (
            refuse_unless(problem.dtype in TYPES, f"x is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(problem.width <= MAX_WIDTH, f"rows of {problem.width}; at most {MAX_WIDTH}"),
            refuse_unless(problem.width % PIECE == 0, f"rows of {problem.width}; a multiple of {PIECE}"),
            refuse_unless(not any(s % PIECE for s in strides), f"rows {strides} apart; multiples of {PIECE}"),
        )
    )


def piecewise(x: torch.Tensor) -> torch.Tensor:
    """`x` as a kernel loads it, `PIECE` values at once: itself, but for a view that starts in between."""
    return x if x.data_ptr() % (PIECE * x.element_size()) == 0 and x.stride(-1) == 1 else x.clone().contiguous()


def run(
    x: torch.Tensor, delta: torch.Tensor | None, scale: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    x, delta = piecewise(x), delta if delta is None else piecewise(delta)
    y = x.new_empty(x.shape)
    s = x if delta is None else x.new_empty(x.shape)
    pointers = (x.data_ptr(), 0 if delta is None else delta.data_ptr(), scale.data_ptr(), s.data_ptr(), y.data_ptr())
    strides = (x.stride(0), x.stride(0) if delta is None else delta.stride(0))
    numbers = (*x.shape, TYPES[str(x.dtype).removeprefix("torch.")], eps)
    entry = native(BUILD, cuda_arch(x.device.index)).entry("run", ENTRY)
    call(entry, *pointers, *strides, *numbers, stream_of(x))
    return s, y


BUILD = BuildSpec(
    operator="norm",
    schedule="rows",
    revision=1,
    language="cuda",
    sources=("norm/rows.cu",),
    headers=("include/abi.h", "include/rms.cuh", "include/sm90.cuh"),
)
SCHEDULE = Schedule(
    name="rows",
    revision=1,
    contract=Bitwise(parent="separate"),
    guard=guard,
    run=run,
    machine=HOPPER,
    build=BUILD,
    summary="Hopper, one launch, a block per row, beside the kernel before it",
)

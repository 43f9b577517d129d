"""Residual norm on CUDA in one launch; a block has a row, and the kernel after it may start beside it.

`csrc/include/rms.cuh` states the order of the sum of squares. It is the order of torch's own RMSNorm, so that the bytes
are those of the separate operations: the gate compares them on the torch that is installed.
"""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.beside import PIECE, TYPES, build, piecewise, schedule, type_of
from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import cuda_arch
from kernels.norm.problem import Problem
from kernels.registry import Refusal, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

MAX_WIDTH = 8192
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


def run(
    x: torch.Tensor, delta: torch.Tensor | None, scale: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    x, delta = piecewise(x), delta if delta is None else piecewise(delta)
    y = x.new_empty(x.shape)
    s = x if delta is None else x.new_empty(x.shape)
    pointers = (x.data_ptr(), 0 if delta is None else delta.data_ptr(), scale.data_ptr(), s.data_ptr(), y.data_ptr())
    strides = (x.stride(0), x.stride(0) if delta is None else delta.stride(0))
    numbers = (*x.shape, type_of(x), eps)
    entry = native(BUILD, cuda_arch(x.device.index)).entry("run", ENTRY)
    call(entry, *pointers, *strides, *numbers, stream_of(x))
    return s, y


BUILD = build("norm", "rows")
SCHEDULE = schedule(BUILD, guard, run, "a block per row")

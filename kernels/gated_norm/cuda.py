"""Gated norm on CUDA in one launch, a warp per head, in the bytes of torch's operations (`csrc/include/rms.cuh`)."""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.beside import PIECE, TYPES, build, piecewise, schedule, type_of
from kernels.gated_norm.problem import Problem
from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import cuda_arch
from kernels.registry import Refusal, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

DIM = 128
ENTRY = (*(c_void_p,) * 4, c_int64, *(c_int,) * 3, c_float, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    stride = problem.gate_stride or problem.heads * problem.dim
    return first_refusal(
        (
            refuse_unless(problem.dtype in TYPES, f"x is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(problem.dim == DIM, f"heads of {problem.dim}; only {DIM}"),
            refuse_unless(problem.axes == 1, f"{problem.axes} axes before the heads; only 1"),
            refuse_unless(problem.dense, "x, or a row of the gate, is not contiguous"),
            refuse_unless(stride % PIECE == 0, f"rows of the gate {stride} elements apart; a multiple of {PIECE}"),
        )
    )


def run(x: torch.Tensor, gate: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    x, gate = piecewise(x), piecewise(gate)
    y = x.new_empty(gate.shape)
    pointers = (x.data_ptr(), gate.data_ptr(), scale.data_ptr(), y.data_ptr(), gate.stride(0))
    numbers = (x.shape[0], x.shape[1], type_of(x), eps)
    entry = native(BUILD, cuda_arch(x.device.index)).entry("run", ENTRY)
    call(entry, *pointers, *numbers, stream_of(x))
    return y


BUILD = build("gated_norm", "heads")
SCHEDULE = schedule(BUILD, guard, run, "a warp per head")

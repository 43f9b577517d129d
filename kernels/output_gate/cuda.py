"""Output gate on CUDA in one launch, without a copy of the gate; `csrc/output_gate/pieces.cu`."""

from __future__ import annotations

from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.beside import PIECE, TYPES, build, piecewise, schedule, type_of
from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import cuda_arch
from kernels.output_gate.problem import Problem
from kernels.registry import Refusal, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

ENTRY = (*(c_void_p,) * 3, c_int64, c_int64, *(c_int,) * 4, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    strides = problem.gate_strides or (problem.heads * problem.dim, problem.dim)
    return first_refusal(
        (
            refuse_unless(problem.dtype in TYPES, f"x is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(problem.dim % PIECE == 0, f"heads of {problem.dim}; a multiple of {PIECE}"),
            refuse_unless(problem.axes == 1, f"{problem.axes} axes before the heads; only 1"),
            refuse_unless(problem.dense, "x, or a head of the gate, is not contiguous"),
            refuse_unless(
                not any(stride % PIECE for stride in strides), f"gates {strides} apart; multiples of {PIECE}"
            ),
        )
    )


def run(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    x, gate = piecewise(x), piecewise(gate)
    rows, heads, dim = x.shape
    y = x.new_empty(rows, heads * dim)
    pointers = (x.data_ptr(), gate.data_ptr(), y.data_ptr())
    numbers = (rows, heads, dim, type_of(x))
    entry = native(BUILD, cuda_arch(x.device.index)).entry("run", ENTRY)
    call(entry, *pointers, gate.stride(0), gate.stride(1), *numbers, stream_of(x))
    return y


BUILD = build("output_gate", "pieces")
SCHEDULE = schedule(BUILD, guard, run, "four values a thread")

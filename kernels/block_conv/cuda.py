"""Block convolution on CUDA in one launch; `csrc/block_conv/pieces.cu`. A block has a few rows: those of a round."""

from __future__ import annotations

from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.beside import PIECE, TYPES, build, piecewise, schedule, type_of
from kernels.block_conv.problem import Problem
from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import cuda_arch
from kernels.registry import Refusal, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

ENTRY = (*(c_void_p,) * 4, c_int64, c_int64, *(c_int,) * 5, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    size = problem.width // problem.groups
    return first_refusal(
        (
            refuse_unless(problem.dtype in TYPES, f"x is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(problem.blocks == 1, f"{problem.blocks} blocks; only 1"),
            refuse_unless(size % PIECE == 0, f"groups of {size} channels; a multiple of {PIECE}"),
            refuse_unless(problem.dense, "x, the base kernel, or a tap's corrections are not contiguous"),
        )
    )


def run(x: torch.Tensor, dynamic: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    x, base = piecewise(x), piecewise(base)
    y = x.new_empty(x.shape)
    pointers = (x.data_ptr(), dynamic.data_ptr(), base.data_ptr(), y.data_ptr())
    numbers = (*x.shape[-2:], *dynamic.shape[-2:], type_of(x))
    entry = native(BUILD, cuda_arch(x.device.index)).entry("run", ENTRY)
    call(entry, *pointers, dynamic.stride(-3), dynamic.stride(-2), *numbers, stream_of(x))
    return y


BUILD = build("block_conv", "pieces")
SCHEDULE = schedule(BUILD, guard, run, "four channels of a row a thread")

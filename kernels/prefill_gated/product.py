"""SiLU of the gates times the ups in one launch behind the projection, with the roundings of torch's two operations."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.native import building
from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import PORTABLE, BuildSpec
from kernels.projection import dense
from kernels.projection.problem import Problem
from kernels.registry import Bitwise, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight

TYPES = {"float16": 0, "bfloat16": 1}
MIN_ROWS = 17
PIECE = 8  # values a thread loads at once
ENTRY = (c_void_p, c_void_p, c_int64, c_int64, c_int, c_void_p)
BUILD = BuildSpec(
    operator="prefill_gated",
    schedule="product",
    revision=1,
    language="cuda",
    sources=("prefill_gated/product.cu",),
    also=PORTABLE,
)


def guard(problem: Problem) -> Refusal | None:
    lacking = building.lacking(BUILD)
    return first_refusal(
        (
            refuse_unless(problem.dtype in TYPES, f"x is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(problem.m >= MIN_ROWS, f"{problem.m} rows; at least {MIN_ROWS}"),
            refuse_unless(problem.n % (2 * PIECE) == 0, f"{problem.n} rows; a multiple of {2 * PIECE}"),
            Refusal(lacking) if lacking else None,
        )
    )


def run(
    x: torch.Tensor, weight: Weight, project: Callable[[torch.Tensor, Weight], torch.Tensor] = dense.run
) -> torch.Tensor:
    both = project(x, weight).contiguous()
    rows, width = both.shape[0], both.shape[1] // 2
    y = both.new_empty(rows, width)
    entry = native(BUILD, cuda_arch(x.device.index)).entry("run", ENTRY)
    form = TYPES[str(x.dtype).removeprefix("torch.")]
    call(entry, both.data_ptr(), y.data_ptr(), rows, width, form, stream_of(x))
    return y


SCHEDULE = Schedule(
    name="product",
    revision=1,
    contract=Bitwise(parent="separate"),
    guard=guard,
    run=run,
    machine=HOPPER,
    build=BUILD,
    summary="CUDA: SiLU and product in one launch behind the projection",
)

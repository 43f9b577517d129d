"""Shortlists on Hopper: 8-bit codes stream through the tensor cores, then the rows that may count are read exactly.

`csrc/shortlist/codes.cu` states the bound and the order of additions, `table.py` the codes. `rows` reads every row of
the weight in that order: the head whose largest logits `codes` promises, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_void_p
from typing import TYPE_CHECKING

from kernels.native.device import multiprocessors, stream_of, workspace
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import BuildSpec
from kernels.projection.cuda import aligned
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless
from kernels.shortlist.problem import Problem

if TYPE_CHECKING:
    import torch

    from kernels.shortlist.table import Table

MAX_ROWS, MAX_K, MAX_WANTED, MAX_VOCAB = 8, 5120, 128, 1 << 24
K_MULTIPLE = 256
ENTRY = (*(c_void_p,) * 7, *(c_int,) * 8, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    stride = problem.row_stride or problem.k
    fits = problem.k % K_MULTIPLE == 0 and problem.k <= MAX_K
    return first_refusal(
        (
            refuse_unless(problem.dtype == "float16", f"x is {problem.dtype}; only float16"),
            refuse_unless(problem.weight_dtype == "float16", f"the weight is {problem.weight_dtype}; only float16"),
            refuse_unless(1 <= problem.m <= MAX_ROWS, f"{problem.m} rows; 1 to {MAX_ROWS}"),
            refuse_unless(fits, f"K = {problem.k}; a multiple of {K_MULTIPLE} up to {MAX_K}"),
            refuse_unless(problem.n < MAX_VOCAB, f"{problem.n} logits; less than {MAX_VOCAB}"),
            refuse_unless(problem.wanted <= MAX_WANTED, f"{problem.wanted} logits wanted; at most {MAX_WANTED}"),
            refuse_unless(stride % 8 == 0, f"rows of x {stride} elements apart; a multiple of 8"),
        )
    )


def runner(spec: BuildSpec, every: bool) -> Callable[..., torch.Tensor]:
    """`run(x, table, wanted, head)` through the library of `spec`; of `every` row, or of those that may count."""

    def run(x: torch.Tensor, table: Table, wanted: int, head: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        import torch  # on first use, so that listing schedules does not load it

        x, codes, weight = aligned(x), table.codes(), table.weight
        (m, k), n, blocks = x.shape, weight.shape[0], multiprocessors(x.device.index)
        logits = x.new_empty(m, n, dtype=torch.float32)
        library = native(spec, cuda_arch(x.device.index))
        scratch = workspace(library, x.device, blocks)
        operands = (x, weight, codes.units, codes.bound, logits, scratch, codes.counts)
        shape = (m, n, k, x.stride(0), weight.stride(0), wanted, int(every), blocks)
        call(library.entry("run", ENTRY), *(operand.data_ptr() for operand in operands), *shape, stream_of(x))
        return logits

    return run


def build(schedule: str) -> BuildSpec:
    return BuildSpec(
        operator="shortlist",
        schedule=schedule,
        revision=1,
        language="cuda",
        sources=("shortlist/codes.cu",),
        headers=("include/abi.h", "include/sm90.cuh"),
    )


ROWS_BUILD, CODES_BUILD = build("rows"), build("codes")
SCHEDULES = (
    Schedule(
        name="rows",
        revision=1,
        contract=Bound(rel_l2=1e-5, statement="exact products, FP32 fma over ascending K per lane, fixed tree"),
        guard=guard,
        run=runner(ROWS_BUILD, True),
        machine=HOPPER,
        build=ROWS_BUILD,
        summary="CUDA, a warp per row of the weight, every row",
    ),
    Schedule(
        name="codes",
        revision=1,
        contract=Bitwise(parent="rows"),
        guard=guard,
        run=runner(CODES_BUILD, False),
        machine=HOPPER,
        build=CODES_BUILD,
        summary="Hopper, 8-bit codes find what may count, those rows exactly",
    ),
)

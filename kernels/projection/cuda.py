"""NVFP4 projection on Hopper: the plain rows, and weights streamed through shared memory into the tensor cores.

`csrc/projection/nvfp4_rows.cu` and `nvfp4_stream.cu` state the order of additions; `packing.py` the streamed layout,
which is made on a weight's first use and kept. How many blocks share the stream is part of the schedule: it fixes
where K is split.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float, c_int, c_void_p
from typing import TYPE_CHECKING, Any

from kernels.native.device import multiprocessors, stream_of, workspace
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import PORTABLE, BuildSpec
from kernels.projection import packing
from kernels.projection.problem import Problem
from kernels.projection.weights import Nvfp4Weight
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

MAX_ROWS = 8
PADDING = 16
PLAIN, GATED, WIDE = range(3)  # what a streamed projection leaves: FP16, SiLU of a gate times its up, FP32
ROWS_ENTRY = (*(c_void_p,) * 4, *(c_int,) * 5, c_float, c_void_p)
STREAM_ENTRY = (*(c_void_p,) * 4, *(c_int,) * 6, c_float, *(c_int,) * 3, c_void_p)


def guard(problem: Problem, k_multiple: int) -> Refusal | None:
    stride = problem.row_stride or problem.k
    return first_refusal(
        (
            refuse_unless(problem.weight_format == "nvfp4", f"weight format {problem.weight_format!r}; only 'nvfp4'"),
            refuse_unless(problem.dtype == "float16", f"x is {problem.dtype}; only float16"),
            refuse_unless(1 <= problem.m <= MAX_ROWS, f"{problem.m} rows; 1 to {MAX_ROWS}"),
            refuse_unless(problem.k % k_multiple == 0, f"K = {problem.k}; a multiple of {k_multiple}"),
            refuse_unless(stride % 8 == 0, f"rows of x {stride} elements apart; a multiple of 8"),
            refuse_unless(
                (problem.physical_n or problem.n) % PADDING == 0,
                f"{problem.physical_n or problem.n} physical columns; pad the weight to a multiple of {PADDING}",
            ),
        )
    )


def aligned(x: torch.Tensor) -> torch.Tensor:
    """`x` with 16-byte rows: itself, but for a view that starts in between."""
    return x if x.data_ptr() % 16 == 0 and x.stride(1) == 1 else x.contiguous().clone()


def rows_runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, weight: Nvfp4Weight, wide: bool = False) -> torch.Tensor:
        assert not wide, "its guard refuses"
        x = aligned(x)
        y = x.new_empty(x.shape[0], weight.n)
        operands = (weight.packed.data_ptr(), weight.scales.data_ptr(), x.data_ptr(), y.data_ptr())
        shape = (x.shape[0], weight.n, weight.k, x.stride(0), weight.n)
        entry = native(spec, cuda_arch(x.device.index)).entry("run", ROWS_ENTRY)
        call(entry, *operands, *shape, 1.0 / weight.global_scale, stream_of(x))
        return y

    return run


def launch(spec: BuildSpec, x: torch.Tensor, units: torch.Tensor, n: int, scale: float | int, form: int,
           blocks_per_sm: int, overlapped: bool = True,
           entry: tuple[Any, ...] = STREAM_ENTRY) -> torch.Tensor:  # fmt: skip
    """One streamed projection to `n` outputs (of a gated pair, `n` of each); `overlapped` with the kernel before it.

    `scale` multiplies the sums: the reciprocal of an NVFP4 weight's global scale, or the address of the rows' scales.
    """
    import torch  # on first use, so that listing schedules does not load it

    x = aligned(x)
    y = x.new_empty(x.shape[0], n, dtype=torch.float32 if form == WIDE else x.dtype)
    library = native(spec, cuda_arch(x.device.index))
    blocks = blocks_per_sm * multiprocessors(x.device.index)
    row_blocks, k_units, _ = units.shape
    scratch = workspace(library, x.device, row_blocks, blocks)
    operands = (units.data_ptr(), x.data_ptr(), y.data_ptr(), scratch.data_ptr())
    shape = (x.shape[0], n, row_blocks, k_units, x.stride(0), n)
    call(library.entry("run", entry), *operands, *shape, scale, form, int(overlapped), blocks, stream_of(x))
    return y


def stream_runner(spec: BuildSpec, blocks_per_sm: int) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, weight: Nvfp4Weight, wide: bool = False) -> torch.Tensor:
        units = weight.layout("nvfp4-stream", packing.layout)
        return launch(spec, x, units, weight.n, 1.0 / weight.global_scale, WIDE if wide else PLAIN, blocks_per_sm)

    return run


def stream_spec(schedule: str, stages: int, *flags: str) -> BuildSpec:
    return BuildSpec(
        operator="projection",
        schedule=schedule,
        revision=1,
        language="cuda",
        sources=("projection/nvfp4_stream.cu",),
        headers=("include/abi.h", "include/sm90.cuh"),
        flags=(f"-DSTREAM_STAGES={stages}", *flags),
    )


def stream_guard(problem: Problem) -> Refusal | None:
    return guard(problem, packing.UNIT_K)


def rows_guard(problem: Problem) -> Refusal | None:
    return first_refusal((guard(problem, 32), refuse_unless(not problem.wide, "FP32 outputs; only float16")))


ROWS_BUILD = BuildSpec(
    operator="projection",
    schedule="nvfp4-rows",
    revision=1,
    language="cuda",
    sources=("projection/nvfp4_rows.cu",),
    also=PORTABLE,
)
STREAM_BUILD = stream_spec("nvfp4-stream", 5)
PAIRED_BUILD = stream_spec("nvfp4-stream-paired", 4)
EXCHANGE_BUILD = stream_spec("nvfp4-stream-exchange", 5, "-DSTREAM_EXCHANGE=1")
ALONE_BUILD = stream_spec("nvfp4-stream-alone", 5, "-DSTREAM_EXCHANGE=1", "-DSTREAM_ALONE=3")
ONCE_BUILD = stream_spec("nvfp4-stream-once", 5, "-DSTREAM_EXCHANGE=1", "-DSTREAM_ALONE=3", "-DSTREAM_ONCE=1")

ROWS = Schedule(
    name="nvfp4-rows",
    revision=1,
    contract=Bound(
        rel_l2=1e-3, statement="exact products, FP32 fma over ascending K per lane, fixed tree, one rounding"
    ),
    guard=rows_guard,
    run=rows_runner(ROWS_BUILD),
    machine=HOPPER,
    build=ROWS_BUILD,
    summary="CUDA, one warp per output from the checkpoint's layout",
)


def streamed(build: BuildSpec, blocks_per_sm: int, contract: Bitwise | Bound, summary: str) -> Schedule:
    run = stream_runner(build, blocks_per_sm)
    return Schedule(build.schedule, build.revision, contract, stream_guard, run, HOPPER, build, summary)


def stream_bound(splits: str) -> Bound:
    statement = f"exact FP16 products, FP32 tensor-core sums, {splits}, one rounding"
    return Bound(rel_l2=1e-3, float32=1e-5, statement=statement, parent="nvfp4-rows")


SCHEDULES = (
    ROWS,
    streamed(STREAM_BUILD, 1, stream_bound("splits of K in ascending order"),
             "Hopper, one block per multiprocessor, split K, in-kernel reduction"),
    streamed(PAIRED_BUILD, 2, stream_bound("twice as many splits of K"), "Hopper, two blocks per multiprocessor"),
    streamed(EXCHANGE_BUILD, 1, Bitwise("nvfp4-stream"),
             "Hopper, nvfp4-stream without counters: shares travel through the second-level cache"),
    streamed(ALONE_BUILD, 1, Bitwise("nvfp4-stream"),
             "Hopper, nvfp4-stream-exchange, one block per multiprocessor however early it starts"),
    streamed(ONCE_BUILD, 1, Bitwise("nvfp4-stream"),
             "Hopper, nvfp4-stream-alone, weights the first to leave the second-level cache"),
)  # fmt: skip

"""Gated NVFP4 projection on Hopper: `projection`'s stream with SiLU and the product in its epilogue.

Gate and up rows of an output lie in neighbouring tiles of one warp (`packing.gated_layout`), so the pair meets in one
lane's registers. The split of K is that of the interleaved weight, not that of the plain one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernels.native.machine import HOPPER
from kernels.native.specification import BuildSpec
from kernels.projection import cuda, packing
from kernels.projection.problem import Problem
from kernels.projection.weights import Nvfp4Weight
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            cuda.stream_guard(problem),
            refuse_unless(problem.n % 2 == 0, f"{problem.n} rows are no gates and as many ups"),
        )
    )


def runner(spec: BuildSpec, blocks_per_sm: int) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, weight: Nvfp4Weight, project: Any = None) -> torch.Tensor:
        """`x` [M, K] and a weight of [2 I, K] -> [M, I] FP16."""
        units = weight.layout("nvfp4-stream-gated", packing.gated_layout)
        return cuda.launch(spec, x, units, weight.n // 2, 1.0 / weight.global_scale, cuda.GATED, blocks_per_sm)

    return run


def schedule(of: BuildSpec, blocks_per_sm: int, contract: Bitwise | Bound, summary: str) -> Schedule:
    """The gated form of a streamed projection: the same source and flags under this operator's name."""
    spec = replace(of, operator="gated")
    return Schedule(of.schedule, 1, contract, guard, runner(spec, blocks_per_sm), HOPPER, spec, summary)


def bound(splits: str) -> Bound:
    return Bound(
        rel_l2=2e-3,
        statement=f"exact FP16 products, FP32 tensor-core sums, {splits}; gate, up, SiLU and product rounded each",
        parent="separate",
    )


# All stages are asked for at once, unlike `projection`'s: what waits behind them here is one norm.
ALONE_BUILD = cuda.stream_spec("nvfp4-stream-alone", 8, "-DSTREAM_EXCHANGE=1", "-DSTREAM_ALONE=8")
ONCE_BUILD = cuda.stream_spec("nvfp4-stream-once", 8, "-DSTREAM_EXCHANGE=1", "-DSTREAM_ALONE=8", "-DSTREAM_ONCE=1")
SCHEDULES = (
    schedule(
        cuda.STREAM_BUILD, 1, bound("one share of K a block"), "Hopper, the streamed projection, SiLU in its epilogue"
    ),
    schedule(cuda.PAIRED_BUILD, 2, bound("twice as many shares of K"), "Hopper, two blocks per multiprocessor"),
    schedule(cuda.EXCHANGE_BUILD, 1, Bitwise("nvfp4-stream"), "Hopper, nvfp4-stream without counters"),
    schedule(ALONE_BUILD, 1, Bitwise("nvfp4-stream"), "Hopper, nvfp4-stream-exchange, one block per multiprocessor"),
    schedule(
        ONCE_BUILD, 1, Bitwise("nvfp4-stream"), "Hopper, nvfp4-stream-alone, weights the first to leave the cache"
    ),
)

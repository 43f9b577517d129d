"""Gated NVFP4 projection on Hopper: `projection`'s stream with SiLU and the product in its epilogue.

Gate and up rows of an output lie in neighbouring tiles of one warp (`packing.gated_layout`), so the pair meets in one
lane's registers. The split of K is that of the interleaved weight, not that of the plain one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.build import BuildSpec
from kernels.projection import cuda, packing
from kernels.projection.problem import Problem
from kernels.projection.weights import Nvfp4Weight
from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            cuda.stream_guard(problem),
            refuse_unless(problem.n % 2 == 0, f"{problem.n} rows are no gates and as many ups"),
        )
    )


def run(x: torch.Tensor, weight: Nvfp4Weight) -> torch.Tensor:
    """`x` [M, K] and a weight of [2 I, K] -> [M, I] FP16."""
    units = weight.layout("nvfp4-stream-gated", packing.gated_layout)
    return cuda.launch(BUILD, x, units, weight.n // 2, weight.global_scale, gated=True, blocks_per_sm=1)


BUILD = BuildSpec(
    operator="gated",
    schedule="nvfp4-stream",
    revision=1,
    language="cuda",
    sources=("projection/nvfp4_stream.cu",),
    headers=cuda.STREAM_BUILD.headers,
    flags=cuda.STREAM_BUILD.flags,
)
SCHEDULES = (
    Schedule(
        name="nvfp4-stream",
        revision=1,
        contract=Bound(
            rel_l2=2e-3,
            statement="exact FP16 products, FP32 tensor-core sums; gate, up, SiLU and product rounded each",
            parent="separate",
        ),
        guard=guard,
        run=run,
        build=BUILD,
        summary="Hopper, the streamed projection with SiLU and product in its epilogue",
    ),
)

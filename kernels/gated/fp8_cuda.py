"""Gated FP8 projection on Hopper: `projection/fp8-stream` with SiLU and the product in its epilogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernels.native.machine import HOPPER
from kernels.native.specification import BuildSpec
from kernels.projection import cuda, fp8_cuda, fp8_packing
from kernels.projection.fp8 import Fp8Weight
from kernels.projection.problem import Problem
from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            fp8_cuda.guard(problem),
            refuse_unless(problem.n % 2 == 0, f"{problem.n} rows are no gates and as many ups"),
        )
    )


def runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, weight: Fp8Weight, project: Any = None) -> torch.Tensor:
        """`x` [M, K] and a weight of [2 I, K] -> [M, I] FP16."""
        units = weight.layout("fp8-stream-gated", fp8_packing.gated_layout)
        return fp8_cuda.launch(spec, x, units, weight.n // 2, weight.scales, cuda.GATED)

    return run


# All stages are asked for at once, unlike `projection`'s: what waits behind them here is one norm.
BUILD = replace(cuda.stream_spec("fp8-stream", 6, *fp8_cuda.FLAGS, "-DSTREAM_ALONE=6"), operator="gated")
SCHEDULE = Schedule(
    name="fp8-stream",
    revision=1,
    contract=Bound(
        rel_l2=2e-3,
        statement="exact FP16 products, FP32 tensor-core sums; gate, up, SiLU and product rounded each",
        parent="separate",
    ),
    guard=guard,
    run=runner(BUILD),
    machine=HOPPER,
    build=BUILD,
    summary="Hopper, E4M3 weights streamed, SiLU in its epilogue",
)

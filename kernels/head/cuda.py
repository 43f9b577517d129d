"""An NVFP4 head on Hopper: `projection`'s streamed weights, the sums stored as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernels.native.machine import HOPPER
from kernels.projection import cuda, packing
from kernels.projection.weights import Nvfp4Weight
from kernels.registry import Bound, Schedule

if TYPE_CHECKING:
    import torch

ALONE_BUILD = replace(cuda.ALONE_BUILD, operator="head")


def run(x: torch.Tensor, weight: Nvfp4Weight) -> torch.Tensor:
    """`x` [M, K] FP16 and a weight of [N, K] -> FP32 [M, N]."""
    units = weight.layout("nvfp4-stream", packing.layout)
    return cuda.launch(ALONE_BUILD, x, units, weight.n, weight.global_scale, cuda.WIDE, 1)


SCHEDULES = (
    Schedule(
        name="nvfp4-stream-alone",
        revision=1,
        contract=Bound(
            rel_l2=1e-5, statement="exact FP16 products, FP32 tensor-core sums, splits of K in ascending order"
        ),
        guard=cuda.stream_guard,
        run=run,
        machine=HOPPER,
        build=ALONE_BUILD,
        summary="Hopper, projection/nvfp4-stream-alone with FP32 results",
    ),
)

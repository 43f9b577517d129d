"""Publication on Hopper whose projection sends: `peers`, and the rows leave from the epilogue of the NVFP4 stream.

The projection is that of `projection/nvfp4-stream-alone`, whatever `project` is, so the bytes are those of `gathered`
behind a streamed projection. What the stream does not take is projected by `project` and published as by `peers`.
"""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p
from dataclasses import replace
from typing import TYPE_CHECKING

from kernels.native.device import multiprocessors, stream_of, workspace
from kernels.native.library import call, native
from kernels.native.machine import cuda_arch
from kernels.native.specification import BuildSpec
from kernels.projection import cuda as projections
from kernels.projection import packing
from kernels.projection import problem_of as projection_of
from kernels.projection.nvfp4 import Nvfp4Weight
from kernels.publication import cuda
from kernels.publication.gathered import Norm, Project, by_torch
from kernels.publication.ranks import Ranks

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight

ENTRY = (*(c_void_p,) * 10, *(c_int,) * 3, c_float, c_int, *(c_int,) * 4, c_int64, c_int, c_float, c_int64, c_void_p)


def run(
    x: torch.Tensor,
    weight: Weight,
    residual: torch.Tensor | None,
    scale: torch.Tensor | None,
    eps: float,
    ranks: Ranks,
    project: Project = by_torch,
    norm: Norm | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if not isinstance(weight, Nvfp4Weight) or projections.stream_guard(projection_of(x, weight)):
        return cuda.exchange(project(x, weight), x.dtype, residual, scale, eps, ranks)
    order = cuda.ordered(x.new_empty(x.shape[0], weight.n), residual, scale, eps, ranks)
    launch(projections.aligned(x), weight, order)
    return order.s, order.y


def launch(x: torch.Tensor, weight: Nvfp4Weight, order: cuda.Order) -> None:
    """Both launches: FP32 rows that are sent as they are made, and the publication that takes them."""
    units = weight.layout("nvfp4-stream", packing.layout)
    library, blocks = native(BUILD, cuda_arch(x.device.index)), multiprocessors(x.device.index)
    row_blocks, k_units, _ = units.shape
    scratch = workspace(library, x.device, row_blocks, blocks)
    made = (units.data_ptr(), x.data_ptr(), scratch.data_ptr())
    shape = (row_blocks, k_units, x.stride(0), 1.0 / weight.global_scale, blocks)
    call(library.entry("project", ENTRY), *made, *order.pointers, *shape, *order.numbers, stream_of(x))


BUILD = BuildSpec(
    operator="publication",
    schedule="peers-stream",
    revision=1,
    language="cuda",
    sources=("publication/peers_stream.cu",),
    headers=("projection/nvfp4_stream.cu", "publication/peers.cu", *cuda.BUILD.headers),
    flags=(*projections.ALONE_BUILD.flags, "-DSTREAM_SENDS=1"),
)
SCHEDULE = replace(
    cuda.SCHEDULE,
    name=BUILD.schedule,
    run=run,
    build=BUILD,
    summary="Hopper, peers, rows sent by the NVFP4 stream's epilogue",
)

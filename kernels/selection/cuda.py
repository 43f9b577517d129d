"""Selection on CUDA: a block keeps what could be among the k + 1 best of its run, then a row's candidates are ranked.

`csrc/selection/threshold.cu` (by the last block of a row to arrive) and `cluster.cu` (by all blocks of a row, through
each other's shared memory) say why the candidates always fit. Values are copied, so the result is the sort's.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.native.device import multiprocessors, stream_of, workspace
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import BuildSpec
from kernels.registry import Bitwise, Refusal, Schedule, first_refusal, refuse_unless
from kernels.selection.problem import Candidates, Problem

if TYPE_CHECKING:
    import torch

MAX_K, MAX_K_CLUSTER = 64, 31
CLUSTER = 16  # blocks
RUN, SHORTEST_RUN, MAX_BLOCKS = 16384, 1024, 128  # logits a block holds, is worth, and blocks a row may have
ENTRY = (*(c_void_p,) * 4, c_int64, *(c_int,) * 4, c_void_p)
CLUSTER_ENTRY = (*(c_void_p,) * 3, c_int64, *(c_int,) * 3, c_void_p)


def guarded(most_k: int, most_logits: int) -> Callable[[Problem], Refusal | None]:
    def guard(problem: Problem) -> Refusal | None:
        return first_refusal(
            (
                refuse_unless(problem.dtype == "float32", f"logits are {problem.dtype}; only float32"),
                refuse_unless(1 <= problem.k <= most_k, f"k = {problem.k}; 1 to {most_k}"),
                refuse_unless(problem.vocab <= most_logits, f"{problem.vocab} logits; at most {most_logits}"),
            )
        )

    return guard


def blocks_of(rows: int, vocab: int, index: int | None) -> int:
    """Blocks per row: enough to hold it, and to fill the device where a run stays long enough to be worth it."""
    filling = min(-(-multiprocessors(index) // rows), -(-vocab // SHORTEST_RUN), MAX_BLOCKS)
    return max(-(-vocab // RUN), filling)


def run(logits: torch.Tensor, k: int) -> Candidates:
    """The k best of each row of `logits` [R, V] and the probe, in dense tie order."""
    rows, vocab = logits.shape
    values, ids = logits.new_empty(rows, k + 1), logits.new_empty(rows, k + 1, dtype=int64())
    library, blocks = native(BUILD, cuda_arch(logits.device.index)), blocks_of(rows, vocab, logits.device.index)
    scratch = workspace(library, logits.device, rows, blocks, k + 1)
    pointers = (tensor.data_ptr() for tensor in (logits, values, ids, scratch))
    shape = (logits.stride(0), rows, vocab, k + 1, blocks)
    call(library.entry("run", ENTRY), *pointers, *shape, stream_of(logits))
    return Candidates(values, ids)


def run_cluster(logits: torch.Tensor, k: int) -> Candidates:
    """As `run`, without a workspace."""
    rows, vocab = logits.shape
    values, ids = logits.new_empty(rows, k + 1), logits.new_empty(rows, k + 1, dtype=int64())
    pointers = (tensor.data_ptr() for tensor in (logits, values, ids))
    entry = native(CLUSTER_BUILD, cuda_arch(logits.device.index)).entry("run", CLUSTER_ENTRY)
    call(entry, *pointers, logits.stride(0), rows, vocab, k + 1, stream_of(logits))
    return Candidates(values, ids)


def int64() -> torch.dtype:
    import torch  # loaded already: logits are one of its tensors

    return torch.int64


def build(schedule: str) -> BuildSpec:
    return BuildSpec(
        operator="selection",
        schedule=schedule,
        revision=1,
        language="cuda",
        sources=(f"selection/{schedule}.cu",),
        headers=("include/abi.h", "include/keys.cuh", "include/sm90.cuh"),
    )


BUILD, CLUSTER_BUILD = build("threshold"), build("cluster")
SCHEDULES = (
    Schedule(
        name="threshold",
        revision=1,
        contract=Bitwise(parent="sort"),
        guard=guarded(MAX_K, RUN * MAX_BLOCKS),
        run=run,
        machine=HOPPER,
        build=BUILD,
        summary="CUDA, candidates per run of a row, ranked by the last block",
    ),
    Schedule(
        name="cluster",
        revision=1,
        contract=Bitwise(parent="sort"),
        guard=guarded(MAX_K_CLUSTER, RUN * CLUSTER),
        run=run_cluster,
        machine=HOPPER,
        build=CLUSTER_BUILD,
        summary="Hopper, a row is a cluster of 16 blocks that rank through each other's shared memory",
    ),
)

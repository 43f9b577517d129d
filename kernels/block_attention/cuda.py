"""Block attention on Hopper in one launch: a cluster of eight blocks per KV head; `csrc/block_attention/cluster.cu`.

A block of the cluster holds its share of the keys in shared memory, so their number is bounded. The context's K and V
are loaded before the previous kernel of the stream has finished: they must not be written by a kernel still in flight.
"""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.block_attention.problem import Problem, Seen
from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import BuildSpec
from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

DIM, MAX_ROWS, MAX_COLUMNS, BLOCKS, KEYS = 128, 8, 32, 8, 272
ENTRY = (*(c_void_p,) * 7, c_int64, c_int64, *(c_int,) * 4, c_float, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    strides, keys = problem.strides or (8, 8), problem.context + problem.rows
    columns = problem.rows * problem.group
    return first_refusal(
        (
            refuse_unless(problem.dtype == "float16", f"q is {problem.dtype}; only float16"),
            refuse_unless(problem.cache == "float16", f"the context is {problem.cache}; only float16"),
            refuse_unless(problem.dim == DIM, f"heads of {problem.dim}; only {DIM}"),
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
            refuse_unless(columns <= MAX_COLUMNS, f"{columns} query rows and heads a KV head; at most {MAX_COLUMNS}"),
            refuse_unless(keys <= BLOCKS * KEYS, f"{keys} keys; at most {BLOCKS * KEYS}"),
            refuse_unless(problem.dense, "q, context, mask, or a row's heads, are not contiguous"),
            refuse_unless(not any(stride % 8 for stride in strides), f"rows {strides} apart; multiples of 8"),
        )
    )


def aligned(x: torch.Tensor) -> torch.Tensor:
    """`x` with rows at multiples of 16 bytes: itself, or a copy of a view that starts in between."""
    return x.clone() if x.data_ptr() % 16 else x


def run(q: torch.Tensor, seen: Seen, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    rows, q_heads, _ = q.shape
    q, k, v, out = aligned(q), aligned(k), aligned(v), q.new_empty(q.shape)
    pointers = (tensor.data_ptr() for tensor in (q, seen.k, seen.v, k, v, seen.mask, out))
    shape = (rows, q_heads, k.shape[1], seen.k.shape[0])
    entry = native(BUILD, cuda_arch(q.device.index)).entry("run", ENTRY)
    call(entry, *pointers, k.stride(0), v.stride(0), *shape, scale, stream_of(q))
    return out


BUILD = BuildSpec(
    operator="block_attention",
    schedule="cluster",
    revision=1,
    language="cuda",
    sources=("block_attention/cluster.cu",),
    headers=("include/abi.h", "include/sm90.cuh"),
)
SCHEDULE = Schedule(
    name="cluster",
    revision=1,
    contract=Bound(
        rel_l2=2e-3,
        statement="FP32 tensor-core sums, probabilities as FP16 plus residual, ordered combine, one rounding",
        parent="separate",
        roundings=0.95,
    ),
    guard=guard,
    run=run,
    machine=HOPPER,
    build=BUILD,
    summary="Hopper, a cluster of eight blocks per KV head, context loaded before the kernel before it has ended",
)

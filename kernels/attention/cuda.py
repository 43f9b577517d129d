"""Verify attention on Hopper: per query head in scalars, and grouped on the tensor cores.

`csrc/attention/scalar.cu`, `tiles.cuh`, `grouped.cu` and `cluster.cu` state the order of operations. The number of
splits follows from the device's multiprocessors and the number of heads alone, so it is fixed for a server's life;
`splits_of` reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import POINTER, c_float, c_int, c_int64, c_void_p
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernels.attention.problem import Problem
from kernels.native.device import multiprocessors, stream_of, workspace
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, cuda_arch
from kernels.native.specification import PORTABLE, BuildSpec
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

QUERIES = {"float16": 0, "bfloat16": 1}
CACHES = {"float8_e4m3fn": 0, "float16": 1, "bfloat16": 2}
SCALAR_DIMS = (64, 128, 256)
MAX_ROWS, MAX_COLUMNS = 8, 48
SCALAR_BLOCKS_PER_SM = 4
Strides = c_int64 * 3
HEAD = (*(c_void_p,) * 7, POINTER(c_int64), POINTER(c_int64))
SCALAR_ENTRY = (*HEAD, *(c_int,) * 7, c_float, c_int, c_void_p)
GROUPED_ENTRY = (*HEAD, *(c_int,) * 4, c_float, c_int, c_void_p)
SHORT_ENTRY = (*(c_void_p,) * 6, POINTER(c_int64), POINTER(c_int64), *(c_int,) * 5, c_float, c_void_p)
MOST_SHORT, MOST_PAGES, SHORT_COLUMNS = 4096, 32, 24  # tokens and entries of a page table, and heads of a cluster


def dense_queries(problem: Problem) -> bool:
    heads, dim = problem.q_heads, problem.head_dim
    return problem.rows == 1 or problem.q_strides in ((), (heads * dim, dim, 1))


def last_axis_contiguous(problem: Problem) -> bool:
    return all(not strides or strides[-1] == 1 for strides in (problem.k_strides, problem.v_strides))


def scalar_guard(problem: Problem) -> Refusal | None:
    lane = max(1, problem.head_dim // 32)
    aligned = all(stride % lane == 0 for stride in (*problem.k_strides[:-1], *problem.v_strides[:-1]))
    return first_refusal(
        (
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
            refuse_unless(problem.q_dtype in QUERIES, f"q is {problem.q_dtype}; one of {', '.join(QUERIES)}"),
            refuse_unless(problem.kv_dtype in CACHES, f"K and V are {problem.kv_dtype}; one of {', '.join(CACHES)}"),
            refuse_unless(problem.head_dim in SCALAR_DIMS, f"head dimension {problem.head_dim}; one of {SCALAR_DIMS}"),
            refuse_unless(dense_queries(problem), f"q with strides {problem.q_strides}; only contiguous"),
            refuse_unless(last_axis_contiguous(problem), "K or V whose last axis is not contiguous"),
            refuse_unless(aligned, f"K or V with strides that are no multiple of {lane}"),
        )
    )


def grouped_guard(problem: Problem) -> Refusal | None:
    columns = problem.rows * problem.group
    aligned = all(stride % 16 == 0 for stride in (*problem.k_strides[:-1], *problem.v_strides[:-1]))
    return first_refusal(
        (
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
            refuse_unless(columns <= MAX_COLUMNS, f"{columns} query rows and heads a KV head; at most {MAX_COLUMNS}"),
            refuse_unless(problem.q_dtype == "float16", f"q is {problem.q_dtype}; only float16"),
            refuse_unless(problem.kv_dtype == "float8_e4m3fn", f"K and V are {problem.kv_dtype}; only float8_e4m3fn"),
            refuse_unless(problem.head_dim == 256, f"head dimension {problem.head_dim}; only 256"),
            refuse_unless(dense_queries(problem), f"q with strides {problem.q_strides}; only contiguous"),
            refuse_unless(last_axis_contiguous(problem), "K or V whose last axis is not contiguous"),
            refuse_unless(aligned, "K or V with strides that are no multiple of 16 bytes"),
        )
    )


def splits_of(heads: int, index: int | None, blocks_per_sm: int = 1) -> int:
    """Partitions of the context so that `heads` times as many blocks fill the device."""
    return max(1, blocks_per_sm * multiprocessors(index) // heads)


def launch(spec: BuildSpec, entry: tuple[Any, ...], operands: tuple[torch.Tensor, ...], scale: float, splits: int,
           workspace_shape: tuple[int, ...], numbers: tuple[int, ...]) -> torch.Tensor:  # fmt: skip
    """One launch on q, K, V, page table and row lengths; `numbers` are what the entry takes after the strides."""
    q, k_pages, v_pages = operands[:3]
    library, out = native(spec, cuda_arch(q.device.index)), q.new_empty(q.shape)
    scratch = workspace(library, q.device, *workspace_shape)
    pointers = (tensor.data_ptr() for tensor in (*operands, out, scratch))
    strides = (Strides(*k_pages.stride()[:3]), Strides(*v_pages.stride()[:3]))
    call(library.entry("run", entry), *pointers, *strides, *numbers, scale, splits, stream_of(q))
    return out


def run_scalar(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    row_lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    rows, q_heads, dim = q.shape
    splits = splits_of(q_heads, q.device.index, SCALAR_BLOCKS_PER_SM)
    types = (QUERIES[dtype_of(q)], CACHES[dtype_of(k_pages)])
    numbers = (*types, rows, q_heads, k_pages.shape[2], dim, k_pages.shape[1])
    operands = (q, k_pages, v_pages, page_table, row_lengths)
    return launch(SCALAR_BUILD, SCALAR_ENTRY, operands, scale, splits, (q_heads, dim, splits), numbers)


def grouped_runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    def run(
        q: torch.Tensor,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        page_table: torch.Tensor,
        row_lengths: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        (rows, q_heads, _), kv_heads = q.shape, k_pages.shape[2]
        splits = splits_of(kv_heads, q.device.index)
        numbers = (rows, q_heads, kv_heads, k_pages.shape[1])  # strides count bytes here: an E4M3 element is one
        operands = (q, k_pages, v_pages, page_table, row_lengths)
        return launch(spec, GROUPED_ENTRY, operands, scale, splits, (kv_heads, splits), numbers)

    return run


def clustered_runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    """`run`: by clusters where the page table names few tokens, else as `grouped_runner`'s."""
    long = grouped_runner(spec)

    def run(
        q: torch.Tensor,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        page_table: torch.Tensor,
        row_lengths: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        (rows, q_heads, _), (_, page_size, kv_heads, _), pages = q.shape, k_pages.shape, page_table.shape[0]
        operands = (q, k_pages, v_pages, page_table, row_lengths)
        if pages > MOST_PAGES or pages * page_size > MOST_SHORT or q_heads // kv_heads > SHORT_COLUMNS:
            return long(*operands, scale)
        library, out = native(spec, cuda_arch(q.device.index)), q.new_empty(q.shape)
        pointers = (tensor.data_ptr() for tensor in (*operands, out))
        strides = (Strides(*k_pages.stride()[:3]), Strides(*v_pages.stride()[:3]))
        shape = (rows, q_heads, kv_heads, page_size, pages)
        call(library.entry("run_short", SHORT_ENTRY), *pointers, *strides, *shape, scale, stream_of(q))
        return out

    return run


def dtype_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


SCALAR_BUILD = BuildSpec(
    operator="attention",
    schedule="scalar",
    revision=1,
    language="cuda",
    sources=("attention/scalar.cu",),
    also=PORTABLE,
)
GROUPED_BUILD = BuildSpec(
    operator="attention",
    schedule="grouped",
    revision=1,
    language="cuda",
    sources=("attention/grouped.cu",),
    headers=("include/abi.h", "attention/tiles.cuh", "include/sm90.cuh"),
)
EARLY_BUILD = replace(GROUPED_BUILD, schedule="grouped-early", flags=("-DATTENTION_EARLY=1",))
CLUSTER_BUILD = replace(
    EARLY_BUILD, schedule="grouped-cluster", sources=("attention/grouped.cu", "attention/cluster.cu")
)

SCALAR = Schedule(
    name="scalar",
    revision=1,
    contract=Bound(rel_l2=2e-3, statement="FP32 fma and online softmax, ascending keys per warp, ordered combine"),
    guard=scalar_guard,
    run=run_scalar,
    machine=HOPPER,
    build=SCALAR_BUILD,
    summary="CUDA, one KV scan per query head, FP32 scalars",
)
GROUPED = Schedule(
    name="grouped",
    revision=1,
    contract=Bound(
        rel_l2=2e-3,
        statement="exact E4M3 decode, FP32 tensor-core sums, probabilities as FP16 plus residual, ordered combine",
        parent="scalar",
    ),
    guard=grouped_guard,
    run=grouped_runner(GROUPED_BUILD),
    machine=HOPPER,
    build=GROUPED_BUILD,
    summary="Hopper, one KV scan for all rows and heads of a KV head, merge in the same launch",
)
EARLY = replace(
    GROUPED,
    name="grouped-early",
    contract=Bitwise(parent="grouped"),
    run=grouped_runner(EARLY_BUILD),
    build=EARLY_BUILD,
    summary="Hopper, grouped beside the kernel before it",
)
CLUSTER = replace(
    GROUPED,
    name="grouped-cluster",
    run=clustered_runner(CLUSTER_BUILD),
    build=CLUSTER_BUILD,
    summary="Hopper, grouped-early, and by clusters where the page table names at most 4096 tokens",
)
SCHEDULES = (SCALAR, GROUPED, EARLY, CLUSTER)

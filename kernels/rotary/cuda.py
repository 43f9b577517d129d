"""Head norms, rotary positions and cache write on CUDA in one launch, a warp per head (`csrc/rotary/heads.cu`).

Its bytes are those of torch's operations: the sum of squares has the order of torch's RMSNorm (`csrc/include/rms.cuh`).
"""

from __future__ import annotations

from ctypes import c_float, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.beside import PIECE, TYPES, build, piecewise, schedule, type_of
from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import cuda_arch
from kernels.registry import Refusal, first_refusal, refuse_unless
from kernels.rotary import storing
from kernels.rotary.problem import Heads, Problem, Store, Table

if TYPE_CHECKING:
    import torch

DIMS, ROTATED = (128, 256), (8, 16, 32, 64, 128)
ENTRY = (*(c_void_p,) * 9, c_int64, *(c_int,) * 8, c_float, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    stride = problem.row_stride or PIECE
    caches = ("", problem.dtype, storing.E4M3)
    return first_refusal(
        (
            refuse_unless(problem.dtype in TYPES, f"qkv is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(problem.dim in DIMS, f"heads of {problem.dim}; one of {DIMS}"),
            refuse_unless(problem.rotated in ROTATED, f"{problem.rotated} values of a head rotate; one of {ROTATED}"),
            refuse_unless(problem.axes == 1, f"{problem.axes} axes before the columns; only 1"),
            refuse_unless(stride % PIECE == 0, f"rows {stride} elements apart; a multiple of {PIECE}"),
            refuse_unless(
                problem.cache in caches, f"the cache is {problem.cache}; {problem.dtype}, {storing.E4M3} or none"
            ),
            refuse_unless(problem.dense, "pages, or tables of positions, that are not contiguous"),
        )
    )


def run(
    qkv: torch.Tensor, heads: Heads, table: Table, store: Store | None = None
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    qkv, rows, (q_width, kv_width, _) = piecewise(qkv), qkv.shape[0], heads.widths
    q = qkv.new_empty(rows, heads.q_heads, heads.dim) if heads.q_heads else None
    k = None if store else qkv.new_empty(rows, heads.kv_heads, heads.dim)
    to = (store.k_pages, store.v_pages, store.slots) if store else (k, None, None)
    cache = 0 if store is None else 1 + (store.k_pages.element_size() == 1)
    operands = (qkv, heads.q_scale, heads.k_scale, *table, q, *to)
    pointers = (0 if tensor is None else tensor.data_ptr() for tensor in operands)
    shape = (rows, heads.q_heads, heads.kv_heads, heads.dim, table[0].shape[-1], int(heads.gated))
    numbers = (*shape, cache, type_of(qkv), heads.eps)
    entry = native(BUILD, cuda_arch(qkv.device.index)).entry("run", ENTRY)
    call(entry, *pointers, qkv.stride(0), *numbers, stream_of(qkv))
    v = None if store else qkv[:, q_width + kv_width :].unflatten(-1, (heads.kv_heads, heads.dim))
    return q, k, v


BUILD = build("rotary", "heads")
SCHEDULE = schedule(BUILD, guard, run, "a warp per head")

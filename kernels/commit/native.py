"""The commit in one launch on CUDA, or in one call on the CPU; `csrc/commit/rows.h` is both."""

from __future__ import annotations

from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.commit.problem import Problem, Window
from kernels.everywhere import everywhere, launch
from kernels.registry import Bitwise, Refusal, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

    from kernels.native.specification import BuildSpec

MAX_LAYERS, CHUNK_BYTES = 16, 16  # as in the source
ENTRY = (*(c_void_p,) * 8, *(c_int,) * 3)


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(problem.layers <= MAX_LAYERS, f"{problem.layers} layers; at most {MAX_LAYERS}"),
            refuse_unless(problem.dtype == problem.cache, f"context {problem.dtype} for rings of {problem.cache}"),
            refuse_unless(
                problem.row_bytes % CHUNK_BYTES == 0, f"rows of {problem.row_bytes} bytes; a multiple of {CHUNK_BYTES}"
            ),
            refuse_unless(
                all(problem.rows <= slots for slots in problem.slots),
                f"{problem.rows} rows for rings of {problem.slots} slots",
            ),
            refuse_unless(problem.dense, "context or rings are not contiguous"),
        )
    )


def run(
    spec: BuildSpec, packed: torch.Tensor, bonus: torch.Tensor, selector: torch.Tensor, window: Window | None
) -> torch.Tensor:
    following = bonus.new_empty(3)
    heads = (packed.data_ptr(), bonus.data_ptr(), following.data_ptr(), selector.data_ptr())
    if window is None:
        launch(spec, ENTRY, packed, *heads, *(0,) * 4, *(0,) * 3)
        return following
    rows, rings = window.rows, [part for pair in window.rings for part in pair]
    addresses = (c_void_p * len(rings))(*(ring.data_ptr() for ring in rings))
    slots = (c_int64 * len(window.rings))(*(len(k) for k, _ in window.rings))
    shape = (len(window.rings), rows.shape[2], rows[0, 0, 0].numel() * rows.element_size())
    launch(spec, ENTRY, packed, *heads, window.length.data_ptr(), rows.data_ptr(), addresses, slots, *shape)
    return following


SCHEDULES = everywhere(
    "commit", "rows", (), guard, run, Bitwise(parent="separate"), "the next bonus, the selector and every kept row"
)

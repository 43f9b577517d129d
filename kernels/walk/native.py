"""The walk in one launch on CUDA, or in one call on the CPU; `csrc/walk/path.h` is both."""

from __future__ import annotations

from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.everywhere import everywhere, launch
from kernels.registry import Bound, Refusal, first_refusal, refuse_unless
from kernels.walk.problem import Draws, Problem

if TYPE_CHECKING:
    import torch

    from kernels.native.specification import BuildSpec

MAX_WIDTH, MAX_PLACES, MAX_EDGES = 64, 512, 4096  # as in the source
ENTRY = (*(c_void_p,) * 7, c_int64, *(c_int,) * 3)


def guard(problem: Problem) -> Refusal | None:
    rows, width = problem.rows, problem.width
    return first_refusal(
        (
            refuse_unless(problem.dtype == "float32", f"scores are {problem.dtype}; only float32"),
            refuse_unless(1 <= width <= MAX_WIDTH, f"{width} candidates a row; 1 to {MAX_WIDTH}"),
            refuse_unless(
                rows * width <= MAX_PLACES and rows * width**2 <= MAX_EDGES,
                f"{rows} rows of {width} candidates; at most {MAX_PLACES} candidates and {MAX_EDGES} edges",
            ),
            refuse_unless(problem.dense, "scores, or a row of candidates, are not contiguous"),
        )
    )


def run(
    spec: BuildSpec, scores: torch.Tensor, candidates: torch.Tensor, draws: Draws
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, width = candidates.shape
    tokens, law = candidates.new_empty(rows), draws.temperature.new_empty(rows, width)
    pointers = (scores, candidates, draws.seed, draws.start, draws.temperature, tokens, law)
    numbers = (candidates.stride(0), rows, width, int(draws.greedy))
    launch(spec, ENTRY, scores, *(tensor.data_ptr() for tensor in pointers), *numbers)
    return tokens, law


SCHEDULES = everywhere(
    "walk", "path", ("include/noise.h",), guard, run,
    Bound(rel_l2=1e-12, statement="FP64, sums in the order of the candidates"),
    "the whole walk",
)  # fmt: skip

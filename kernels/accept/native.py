"""The verdict in one launch on CUDA, or in one call on the CPU; `csrc/accept/verdict.h` is both."""

from __future__ import annotations

from ctypes import c_double, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.accept.problem import Best, Chain, Problem, Rule
from kernels.everywhere import everywhere, launch
from kernels.registry import Bound, Refusal, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

    from kernels.native.specification import BuildSpec

MAX_ROWS, MAX_SUPPORT, MAX_ENTRIES = 32, 65, 1088  # as in the source
ENTRY = (*(c_void_p,) * 8, *(c_double,) * 3, c_int64, *(c_int,) * 6)


def guard(problem: Problem) -> Refusal | None:
    rows, support = problem.rows, problem.support
    return first_refusal(
        (
            refuse_unless(problem.dtype == "float32", f"logits are {problem.dtype}; only float32"),
            refuse_unless(rows <= MAX_ROWS, f"{rows} rows; at most {MAX_ROWS}"),
            refuse_unless(
                support <= MAX_SUPPORT and rows * support <= MAX_ENTRIES,
                f"{rows} rows of {support} logits; at most {MAX_SUPPORT} a row and {MAX_ENTRIES} in all",
            ),
            refuse_unless(problem.dense, "logits or laws, or a row of draft ids, are not contiguous"),
        )
    )


def run(spec: BuildSpec, best: Best, chain: Chain, bonus: torch.Tensor, rule: Rule) -> torch.Tensor:
    packed = chain.tokens.new_empty(4 + len(chain.tokens))
    pointers = (tensor.data_ptr() for tensor in (*best, *chain, bonus, packed))
    shape = (chain.ids.stride(0), *best.values.shape, chain.ids.shape[-1])
    switches = (rule.top_k, int(rule.greedy), int(rule.complete))
    launch(spec, ENTRY, best.values, *pointers, rule.temperature, rule.top_p, rule.min_p, *shape, *switches)
    return packed


SCHEDULES = everywhere(
    "accept", "verdict", ("include/noise.h",), guard, run,
    Bound(rel_l2=0.0, statement="laws in FP64, sums in the order of the support"),
    "laws, tests, residual and race",
)  # fmt: skip

"""The shortlist in torch, for tests on the CPU: codes, bound, exact rows. FP64 sums of exact products, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless
from kernels.shortlist.problem import Problem
from kernels.shortlist.table import GROUP, quantised

if TYPE_CHECKING:
    import torch

    from kernels.shortlist.table import Table


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(problem.device == "cpu", f"on {problem.device}; only on the CPU, whose host may look at it"),
            refuse_unless(problem.k % GROUP == 0, f"K = {problem.k}; a multiple of {GROUP}"),
        )
    )


def run(x: torch.Tensor, table: Table, wanted: int, head: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The logits [M, V] of `x` [M, K] that can be among the `wanted` largest of their row, -inf for all others."""
    import torch  # on first use, so that listing schedules does not load it

    codes, scale, bound = quantised(table.weight)
    near = x.float() @ (codes.float().unflatten(-1, (-1, GROUP)) * scale[..., None]).flatten(-2).T
    apart = bound * (x.float().norm(dim=-1, keepdim=True) * (1 + 1e-4))
    sure = (near - apart).nan_to_num(float("-inf"))
    least = sure.topk(wanted, -1).values[:, -1:]
    candidates = ~(near + apart < least)
    rows = candidates.any(0).nonzero()[:, 0]
    exact = (x.double() @ table.weight[rows].double().T).float()
    logits = torch.full_like(near, float("-inf"))
    logits[:, rows] = exact.masked_fill(~candidates[:, rows], float("-inf"))
    return logits


SCHEDULE = Schedule(
    name="bound",
    revision=1,
    contract=Bound(rel_l2=1e-6, statement="FP64 sums rounded once, for logits not proven too small by 8-bit codes"),
    guard=guard,
    run=run,
    summary="torch on the CPU, 8-bit codes with a bound, then exact rows",
)

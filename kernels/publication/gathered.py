"""The default publication: partial rows gathered by the group's own library, added in rank order, then the norm.

Projection and norm are whatever the caller has for them, in a model the schedules that its arm names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.norm import separate
from kernels.projection import dense
from kernels.publication.problem import Problem
from kernels.publication.ranks import Ranks
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight

Project = Callable[["torch.Tensor", "Weight"], "torch.Tensor"]
Norm = Callable[["torch.Tensor", "torch.Tensor"], tuple["torch.Tensor", "torch.Tensor"]]


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def by_torch(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """FP32 partial rows by torch's GEMM."""
    return dense.run(x, weight, wide=True)


def summed(parts: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """FP32 partial rows added in rank order, rounded once."""
    first, *others = parts
    total = first
    for part in others:
        total = total + part
    return total.to(dtype)


def with_norm(
    product: torch.Tensor, residual: torch.Tensor | None, scale: torch.Tensor | None, eps: float, norm: Norm | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum and its norm by `norm`, or by torch; the product itself without a residual."""
    if residual is None or scale is None:
        return product, product
    return separate.run(residual, product, scale, eps) if norm is None else norm(residual, product)


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
    product = summed(ranks.gather(project(x, weight)), x.dtype)
    return with_norm(product, residual, scale, eps, norm)


SCHEDULE = Schedule(
    name="gathered",
    revision=1,
    contract=Bound(
        rel_l2=4e-3,
        float32=1e-5,
        statement="FP32 partial rows in rank order, rounded once; residual and norm as `norm`",
    ),
    guard=guard,
    run=run,
    summary="all-gather of the group's library (NCCL, gloo), ordered sum, norm",
)

"""The default projection: torch's own GEMM. Its accumulation order is the library's and depends on the shape.

An NVFP4 or FP8 weight is decoded a slice of columns at a time. Its exact products meet x in FP32 accumulation, and the
scale of the whole or of the row and the rounding to the dtype of x come once, after the sum. Slow, and always there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.projection.fp8 import Fp8Weight
from kernels.projection.nvfp4 import Nvfp4Weight
from kernels.projection.problem import Problem
from kernels.projection.weights import DenseWeight, Weight
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

SLICE = 2048


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(x: torch.Tensor, weight: Weight, wide: bool = False) -> torch.Tensor:
    """`x` [M, K] times a weight [N, K] transposed -> [M, N] in the dtype of `x`, or FP32."""
    return dense(x, weight, wide) if isinstance(weight, DenseWeight) else decoded(x, weight, wide)


def dense(x: torch.Tensor, weight: DenseWeight, wide: bool) -> torch.Tensor:
    import torch  # on first use, so that listing schedules does not load it

    w = weight.w.to(x.dtype)
    if not wide or x.dtype == torch.float32:
        return torch.nn.functional.linear(x, w)
    return torch.mm(x, w.T, out_dtype=torch.float32) if x.is_cuda else torch.nn.functional.linear(x.float(), w.float())


def decoded(x: torch.Tensor, weight: Nvfp4Weight | Fp8Weight, wide: bool) -> torch.Tensor:
    import torch  # on first use, so that listing schedules does not load it

    out = x.new_empty(x.shape[0], weight.n, dtype=torch.float32 if wide else x.dtype)
    for first in range(0, weight.n, SLICE):
        last = min(first + SLICE, weight.n)
        out[:, first:last] = scaled(accumulate(x, weight, first, last), weight, first, last)
    return out


def scaled(sums: torch.Tensor, weight: Nvfp4Weight | Fp8Weight, first: int, last: int) -> torch.Tensor:
    return sums * weight.scales[first:last] if isinstance(weight, Fp8Weight) else sums / weight.global_scale


def accumulate(x: torch.Tensor, weight: Nvfp4Weight | Fp8Weight, first: int, last: int) -> torch.Tensor:
    """FP32 [M, last - first]. A GPU multiplies 16-bit operands, in which products are exact, and keeps the FP32 sum."""
    if x.device.type == "cuda" and x.element_size() == 2:
        import torch

        return torch.mm(x, weight.products(first, last, x.dtype).T, out_dtype=torch.float32)
    return x.float() @ weight.products(first, last).T


SCHEDULE = Schedule(
    name="dense",
    revision=1,
    contract=Bound(
        rel_l2=4e-3, float32=1e-5, statement="FP32 accumulation in the library's order, one rounding to the dtype of x"
    ),
    guard=guard,
    run=run,
    summary="torch's GEMM",
)

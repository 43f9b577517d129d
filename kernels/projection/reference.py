"""The numerical contract of a linear projection, in FP64: `y[m, n] = sum_k x[m, k] * w[n, k]`.

Operands are taken at their stored precision and never re-rounded. A schedule accumulates in FP32 and rounds once to
the dtype of `x`. An NVFP4 weight is decoded exactly first (`kernels.projection.nvfp4`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight


def project(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """FP64 [M, N] of `x` [M, K] and a weight of [N, K]; not rounded to the dtype of `x`."""
    return x.double() @ weight.dequantised().double().T

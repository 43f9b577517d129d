"""The numerical contract of prompt GDN, in FP64: the recurrence of `kernels.gdn.reference`, token after token.

Convolution, gates and recurrence are those of verification (stated there), from `history` and `before`; `out` is
rounded once, the convolved channels once before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.gdn.reference import gates, split_heads

if TYPE_CHECKING:
    import torch

    from kernels.gdn import Layer


@dataclass(frozen=True, eq=False)
class Expected:
    """`out` FP64 [T, Hv, Dv] and `after` FP64 [Hv, Dk, Dv]."""

    out: torch.Tensor
    after: torch.Tensor


def prefill(
    qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, history: torch.Tensor, before: torch.Tensor
) -> Expected:
    import torch  # on first use, so that listing schedules does not load it

    double = qkv.double().dtype
    inputs, width = torch.cat((history, qkv)).to(double), layer.conv_weight.shape[1]
    summed = sum(inputs[tap : tap + len(qkv)] * layer.conv_weight[:, tap].to(double) for tap in range(width))
    convolved = (summed * summed.sigmoid()).to(qkv.dtype)
    q, k, v = split_heads(convolved, before[None], double)
    decay, beta = gates(a, b, layer, double)
    state, outs = before.to(double), []
    for row in range(len(qkv)):
        state = decay[row, :, None, None] * state
        delta = beta[row, :, None] * (v[row] - (state * k[row, :, :, None]).sum(1))
        state = state + k[row, :, :, None] * delta[:, None]
        outs.append((state * q[row, :, :, None]).sum(1))
    return Expected(torch.stack(outs), state)

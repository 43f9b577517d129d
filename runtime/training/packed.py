"""How tokens reach the tokens before them in a lane of several rows: as in `SequenceStep`, but within their own row.

Attention is masked, the convolution's taps are cut at a row's first token, and the recurrent state is forgotten there.
Positions run through the lane: only their differences matter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.prefill_gdn.delta import chunked_delta_rule, gates
from runtime.models.layers import Rotary

if TYPE_CHECKING:
    from runtime.models.target import Attention, GatedDeltaNet

# A log decay of this at a row's first token leaves 2e-22 of the state before it.
_FORGET = -50.0


class PackedStep:
    """Lanes [B, T, ..] whose tokens belong to `rows` [B, T]. Differentiable."""

    def __init__(self, rotary: Rotary, rows: Tensor) -> None:
        self.rows = rows
        self.table = rotary.table(torch.arange(rows.shape[1], device=rows.device))
        self.mask = (rows[:, :, None] == rows[:, None, :]).tril()[:, None]
        self.forget = _FORGET * (rows != before(rows, 1))[..., None]

    def store(self, layer: int) -> None:
        return None

    def attention(self, module: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return masked_attention(q, k, v, self.mask, module.scale)

    def recurrence(self, module: GatedDeltaNet, qkv: Tensor, a: Tensor, b: Tensor) -> Tensor:
        q, k, v = module.split_heads(_fused(convolve_rows)(qkv, module.operands.conv_weight, self.rows))
        g, beta = gates(a, b, module.operands.a_log, module.operands.dt_bias)
        return _fused(chunked_delta_rule)(q, k, v, g + self.forget, beta, None)[0].to(qkv.dtype)


def before(x: Tensor, tokens: int) -> Tensor:
    """`x` [B, T, ..] moved along by `tokens`; what has nothing before it gets NO_ROW (or -1)."""
    return torch.cat((torch.full_like(x[:, :tokens], -1), x[:, :-tokens]), 1)


def convolve_rows(x: Tensor, weight: Tensor, rows: Tensor) -> Tensor:
    """Causal depthwise convolution and SiLU of `x` [B, T, C] by `weight` [C, width], within rows."""
    width, values = weight.shape[1], x.float()
    total = values * weight[:, -1]
    for back in range(1, width):
        same = (rows == before(rows, back))[..., None]
        total = torch.addcmul(total, before(values, back) * same, weight[:, -1 - back])
    return F.silu(total).to(x.dtype)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """`q` [B, T, Hq, D] over `k`, `v` [B, L, Hkv, D] where `mask` [B, 1, T, L] is true.

    Heads are repeated: the fused kernels take a mask or grouped heads, not both.
    """
    groups = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(groups, 2).transpose(1, 2) for x in (k, v))
    return F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask, scale=scale).transpose(1, 2)


def _fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled on CUDA, where its many small products would otherwise take most of a step."""
    return _compiled(function) if torch.cuda.is_available() else function


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)

"""The numerical contract of GDN verification, in FP64.

Convolution inputs of channel c, oldest first: the W - 1 columns of `window` from `selector - 1` on, then the R rows.
Row r convolves the W inputs that end at it (`conv_weight[c, W - 1]` meets the newest), applies SiLU, and rounds once to
the dtype of qkv. Afterwards `window` holds those inputs without the oldest one, R + W - 2 columns from 0 on; the
columns beyond stay as they were. So the next run finds its history at its own selector - 1.

Per row and value head h (key head h // (Hv / Hk)), with S the state [Dk, Dv] before the row:

    q, k = unit(q) / sqrt(Dk), unit(k)              unit(x) = x / sqrt(sum(x²) + 1e-6)
    g    = -exp(a_log) * softplus(a + dt_bias)      beta = sigmoid(b)
    S    = exp(g) * S;   d = beta * (v - Sᵀk);   S = S + k dᵀ;   out = Sᵀq

The first row starts from `pool[slot_table[selector - 1]]`. Row r writes its S to `pool[slot_table[r]]`, nowhere if
that entry is -1; no other slot changes. States, gates and sums are FP32 in a schedule; `out` is rounded once to the
dtype of qkv. Value columns do not mix, so schedules that differ in their value tile alone agree bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernels.gdn.problem import Layer, State

EPS = 1e-6


@dataclass(frozen=True, eq=False)
class Expected:
    """`out` FP64 [R, Hv, Dv], `states` FP64 [R, Hv, Dk, Dv] in row order, `window` as it must be afterwards."""

    out: torch.Tensor
    states: torch.Tensor
    window: torch.Tensor


def softplus(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0) + (-x.abs()).exp().log1p()


def unit(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().sum(-1, keepdim=True) + EPS).rsqrt()


def convolve(qkv: torch.Tensor, layer: Layer, state: State, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """SiLU of the convolution [R, C], computed in `dtype` and rounded to that of qkv, and the new window."""
    rows, (channels, width) = qkv.shape[0], layer.conv_weight.shape
    # Indices instead of a slice: the selector stays on its device.
    columns = state.selector.long() - 1 + state.selector.new_ones(width - 1).cumsum(0) - 1
    inputs = qkv.new_empty(channels, width - 1 + rows)
    inputs[:, : width - 1] = state.window.index_select(1, columns)
    inputs[:, width - 1 :] = qkv.T
    taps = inputs.to(dtype).unfold(1, width, 1) * layer.conv_weight.to(dtype)[:, None]
    summed = taps[..., 0]
    for tap in range(1, width):
        summed = summed + taps[..., tap]
    window = state.window.clone()
    window[:, : rows + width - 2] = inputs[:, 1:]
    return (summed * summed.sigmoid()).to(qkv.dtype).T, window


def split_heads(
    convolved: torch.Tensor, pool: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q (scaled), k [R, Hv, Dk] repeated per value head, v [R, Hv, Dv], in `dtype`."""
    _, value_heads, key_dim, value_dim = pool.shape
    keys = (convolved.shape[1] - value_heads * value_dim) // 2
    q, k, v = convolved.to(dtype).split((keys, keys, value_heads * value_dim), -1)
    group = value_heads // (keys // key_dim)
    q, k = (unit(x.unflatten(-1, (-1, key_dim))).repeat_interleave(group, 1) for x in (q, k))
    return q * key_dim**-0.5, k, v.unflatten(-1, (value_heads, value_dim))


def gates(a: torch.Tensor, b: torch.Tensor, layer: Layer, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(g) and beta [R, Hv] in `dtype`."""
    log_decay = -layer.a_log.to(dtype).exp() * softplus(a.to(dtype) + layer.dt_bias.to(dtype))
    return log_decay.exp(), b.to(dtype).sigmoid()


def verify(qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, state: State) -> Expected:
    """What a run must give; nothing is written."""
    import torch  # on first use, so that listing schedules does not load it

    double = qkv.double().dtype
    convolved, window = convolve(qkv, layer, state, double)
    q, k, v = split_heads(convolved, state.pool, double)
    decay, beta = gates(a, b, layer, double)
    current = state.pool[int(state.slot_table[int(state.selector) - 1])].double()
    outs, states = [], []
    for row in range(qkv.shape[0]):
        current = decay[row, :, None, None] * current
        delta = beta[row, :, None] * (v[row] - (current * k[row, :, :, None]).sum(1))
        current = current + k[row, :, :, None] * delta[:, None]
        outs.append((current * q[row, :, :, None]).sum(1))
        states.append(current)
    return Expected(torch.stack(outs), torch.stack(states), window)

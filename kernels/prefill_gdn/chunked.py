"""The default: torch operations in FP32, chunks of 64 tokens (`kernels.prefill_gdn.delta`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.prefill_gdn.problem import Problem
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

    from kernels.gdn import Layer


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def split_heads(convolved: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Channels [T, C] -> q, k [T, Hk, Dk] and v [T, Hv, Dv]."""
    value_heads, key_dim, value_dim = before.shape
    values = value_heads * value_dim
    keys = (convolved.shape[-1] - values) // 2
    q, k, v = convolved.split((keys, keys, values), -1)
    return q.unflatten(-1, (-1, key_dim)), k.unflatten(-1, (-1, key_dim)), v.unflatten(-1, (-1, value_dim))


def run(
    qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, history: torch.Tensor, before: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    from kernels.prefill_gdn.delta import chunked_delta_rule, convolve, gates  # it loads torch

    q, k, v = split_heads(convolve(history, qkv, layer.conv_weight), before)
    g, beta = gates(a, b, layer.a_log, layer.dt_bias)
    out, after = chunked_delta_rule(q[None], k[None], v[None], g[None], beta[None], before[None])
    return out[0].to(qkv.dtype), after[0]


SCHEDULE = Schedule(
    name="chunked",
    revision=1,
    contract=Bound(
        rel_l2=2e-3, float32=3e-5, statement="FP32 states, gates and sums in the library's order, one rounding of out"
    ),
    guard=guard,
    run=run,
    summary="torch, chunks of 64 tokens in FP32",
)

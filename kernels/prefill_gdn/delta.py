"""The gated delta rule over whole sequences, in chunks: prefill and training.

Per token, with the state S [Dk, Dv]:  S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q.

Inside a chunk the corrections d depend on each other only backwards, so they solve one unit lower triangular system
    (I + A) d = beta (v - exp(G) S0^T k),   A[i, j] = beta_i exp(G_i - G_j) <k_i, k_j> for j < i,
with G the running sum of g. Everything is FP32. Differentiable: training takes it from here. `kernels.gdn` has the
few-row form that verification uses; this module knows nothing of slots. Imported on first use, because it loads torch.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64


def unit(x: Tensor) -> Tensor:
    """`x` in FP32, scaled to length one along its last axis (eps 1e-6 inside the root)."""
    x = x.float()
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def gates(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Log decay g <= 0 and step size beta in (0, 1), both FP32, of the raw projections `a` and `b` [.., Hv]."""
    return -a_log.float().exp() * F.softplus(a.float() + dt_bias.float()), b.float().sigmoid()


def convolve(history: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Causal depthwise convolution and SiLU: `x` [.., T, C] after `history` [.., width - 1, C], `weight` [C, width]."""
    window, length = torch.cat((history, x), -2).float(), x.shape[-2]
    total = window[..., :length, :] * weight[:, 0]
    for tap in range(1, weight.shape[1]):
        total = torch.addcmul(total, window[..., tap : tap + length, :], weight[:, tap])
    return F.silu(total).to(x.dtype)


def chunked_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """All tokens of a sequence.

    `q`, `k` [B, T, Hk, Dk] raw (normalised here), `v` [B, T, Hv, Dv], `g`, `beta` [B, T, Hv] FP32, `state`
    [B, Hv, Dk, Dv] FP32 or None for zero. Returns o [B, T, Hv, Dv] FP32 and the state after the last token.
    """
    length, groups = q.shape[1], v.shape[2] // q.shape[2]
    size = min(CHUNK, length)
    q = unit(q) * q.shape[-1] ** -0.5
    q, k, v = (_chunks(x, size) for x in (_per_value_head(q, groups), _per_value_head(unit(k), groups), v.float()))
    running, beta = _chunks(g[..., None], size).squeeze(-1).cumsum(-1), _chunks(beta[..., None], size)
    decay = _pair_decay(running)
    since_start = running.exp()[..., None]
    system = torch.tril(k @ k.mT * decay * beta, -1)
    values, reads = solve_unit_lower(system, beta * v, beta * since_start * k)
    attention, queries = q @ k.mT * decay, q * since_start
    keys = k * (running[..., -1:] - running).exp()[..., None]
    if state is None:
        state = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
    outputs = []
    for i in range(v.shape[2]):
        correction = values[:, :, i] - reads[:, :, i] @ state
        outputs.append(queries[:, :, i] @ state + attention[:, :, i] @ correction)
        state = state * since_start[:, :, i, -1:] + keys[:, :, i].mT @ correction
    return torch.cat(outputs, 2)[:, :, :length].transpose(1, 2), state


def solve_unit_lower(system: Tensor, *right: Tensor) -> tuple[Tensor, ...]:
    """`(I + system)^-1 r` for each right side; `system` [.., n, n] is strictly lower triangular.

    On CUDA by the inverse: batched triangular solves of this size run far below the speed of batched products.
    """
    if system.is_cuda:
        inverse = UnitLowerInverse.apply(system)
        return tuple(inverse @ r for r in right)
    return tuple(torch.linalg.solve_triangular(system, r, upper=False, unitriangular=True) for r in right)


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 of strictly lower triangular A [.., n, n], from halves: n is padded to a power of two.

    [[P, 0], [C, Q]]^-1 = [[P', 0], [-Q' C P', Q']], all pairs of neighbouring diagonal blocks at once, block size 1 to
    n / 2. Unlike products of powers of A, no intermediate grows beyond the inverse itself.
    """

    @staticmethod
    def forward(ctx: Any, system: Tensor) -> Tensor:
        n = system.shape[-1]
        size = 1 << max(0, n - 1).bit_length()
        a = F.pad(system, (0, size - n, 0, size - n))
        inverse = torch.eye(size, dtype=a.dtype, device=a.device).expand(a.shape).clone()
        half = 1
        while half < size:
            blocks, known = (_diagonal_blocks(x, 2 * half) for x in (a, inverse))
            upper, lower = known[..., :half, :half], known[..., half:, half:]
            known[..., half:, :half] = -(lower @ blocks[..., half:, :half] @ upper)
            half *= 2
        inverse = inverse[..., :n, :n]
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -torch.tril(inverse.mT @ gradient @ inverse.mT, -1)


def _diagonal_blocks(x: Tensor, size: int) -> Tensor:
    """The diagonal blocks of `x` [.., n, n] as a view [.., n / size, size, size]."""
    count = x.shape[-1] // size
    strides = (*x.stride()[:-2], size * (x.stride(-2) + x.stride(-1)), x.stride(-2), x.stride(-1))
    return x.as_strided((*x.shape[:-2], count, size, size), strides)


def _per_value_head(x: Tensor, groups: int) -> Tensor:
    return x if groups == 1 else x.repeat_interleave(groups, 2)


def _chunks(x: Tensor, size: int) -> Tensor:
    """[B, T, H, D] -> [B, H, chunks, size, D], padded with zeros (g = 0, beta = 0: a padded token changes nothing)."""
    x = F.pad(x.transpose(1, 2), (0, 0, 0, -x.shape[1] % size))
    return x.unflatten(2, (-1, size))


def _pair_decay(running: Tensor) -> Tensor:
    """exp(G_i - G_j) for j <= i, else 0; masked before the exponential, which would overflow above the diagonal."""
    size = running.shape[-1]
    gap = running[..., :, None] - running[..., None, :]
    above = torch.ones(size, size, dtype=torch.bool, device=running.device).triu(1)
    return gap.masked_fill(above, float("-inf")).exp()

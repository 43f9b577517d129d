"""Prompt attention by the two flash attentions that torch carries, called by name: which one ran must be known.

`flash` is FlashAttention 2, whose causal mask is aligned to the last key, so that one call has a whole chunk. `cudnn`
is cuDNN's, written for Hopper; its causal mask is aligned to the first key, so a chunk is two calls, one over the keys
before it, which every row sees, and one over its own: the two softmaxes are joined by their logarithmic sums (Milakov
and Gimelshein, 2018). Which heads cuDNN takes depends on its version: whether it takes these here is tried once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kernels.native.machine import HOPPER
from kernels.prefill_attention.problem import Problem
from kernels.registry import Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

TYPES = ("float16", "bfloat16")
MAX_DIM = 256
TRIED = 128  # rows and past keys of the trial


def flash_guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(problem.dtype in TYPES, f"q is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(
                problem.head_dim <= MAX_DIM and problem.head_dim % 8 == 0,
                f"heads of {problem.head_dim}; a multiple of 8, at most {MAX_DIM}",
            ),
            refuse_unless(
                problem.q_heads % problem.kv_heads == 0,
                f"{problem.q_heads} query heads of {problem.kv_heads} KV heads; a multiple",
            ),
        )
    )


def cudnn_guard(problem: Problem) -> Refusal | None:
    alone = problem.rows == 1 or problem.past == 1
    return first_refusal(
        (
            flash_guard(problem),
            refuse_unless(not alone, f"{problem.rows} rows after {problem.past} keys; cuDNN takes no single key"),
        )
    ) or _refused(problem)


def _refused(problem: Problem) -> Refusal | None:
    if problem.device != "cuda":  # the machine refuses before the guard is asked
        return None
    reason = cudnn_trial(problem.q_heads, problem.kv_heads, problem.head_dim, problem.dtype)
    return Refusal(reason) if reason else None


@cache
def cudnn_trial(q_heads: int, kv_heads: int, head_dim: int, dtype: str) -> str:
    """Why cuDNN does not compute a chunk of such heads here; empty where it does, and near FlashAttention's."""
    import torch

    kind = getattr(torch, dtype)
    draw = torch.Generator("cuda").manual_seed(1)
    shapes = ((TRIED, q_heads), (2 * TRIED, kv_heads), (2 * TRIED, kv_heads))
    q, k, v = (torch.randn(*shape, head_dim, device="cuda", generator=draw).to(kind) for shape in shapes)
    try:
        found, want = cudnn(q, k, v, head_dim**-0.5).float(), flash(q, k, v, head_dim**-0.5).float()
    except RuntimeError as error:
        return f"cuDNN refuses heads of {head_dim}: {str(error).splitlines()[0]}"
    apart = float((found - want).norm() / want.norm())
    return "" if apart < 1e-2 else f"cuDNN is {apart:.2g} from FlashAttention for heads of {head_dim}"


def _batched(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """[T, H, D] -> [1, H, T, D] views."""
    return tuple(x.transpose(0, 1)[None] for x in tensors)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    import torch  # on first use, so that listing schedules does not load it

    attend = torch.ops.aten._scaled_dot_product_flash_attention
    return attend(*_batched(q, k, v), 0.0, True, False, scale=scale)[0][0].transpose(0, 1)


def cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    past = len(k) - len(q)
    own, own_sum = _cudnn(q, k[past:], v[past:], scale, causal=True)
    if not past:
        return own.transpose(0, 1)
    before, before_sum = _cudnn(q, k[:past], v[:past], scale, causal=False)
    share = (own_sum - before_sum).sigmoid()  # of the own keys in the joint sum
    return before.float().lerp_(own.float(), share).to(q.dtype).transpose(0, 1)


def _cudnn(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """[Hq, T, D], and the natural logarithm of every row's sum [Hq, T, 1] FP32."""
    import torch

    attend = torch.ops.aten._scaled_dot_product_cudnn_attention
    found = attend(*_batched(q, k, v), None, True, 0.0, causal, False, scale=scale)
    return found[0][0], found[1].reshape(q.shape[1], q.shape[0], 1)


CONTRACT = Bound(rel_l2=4e-3, statement="exact products, FP32 sums, probabilities in 16 bits, one or two roundings")
FLASH = Schedule(
    name="flash",
    revision=1,
    contract=CONTRACT,
    guard=flash_guard,
    run=flash,
    machine=HOPPER,
    summary="FlashAttention 2 of torch",
)
CUDNN = Schedule(
    name="cudnn",
    revision=1,
    contract=CONTRACT,
    guard=cudnn_guard,
    run=cudnn,
    machine=HOPPER,
    summary="cuDNN's attention, past and own keys joined",
)

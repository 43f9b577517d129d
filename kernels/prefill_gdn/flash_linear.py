"""Prompt GDN by flash-linear-attention: its causal convolution and its chunked gated delta rule, in Triton.

Queries and keys are normalised, and what lies within a chunk is stored, in 16 bits; states and sums are FP32, and so
are the gates, which are torch's. Source: https://github.com/fla-org/flash-linear-attention (fla-core).

What a compiler makes of the library on this machine is tried once for each kind of heads, against torch's form, before
a prompt is left to it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kernels.gdn.reference import EPS
from kernels.native.machine import HOPPER
from kernels.prefill_gdn import chunked
from kernels.prefill_gdn.chunked import split_heads
from kernels.prefill_gdn.problem import Problem
from kernels.registry import Bound, Library, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

    from kernels.gdn import Layer

TYPES = ("float16", "bfloat16")
DIMS = (64, 128, 256)
MIN_ROWS = 64  # below, one launch of torch's form is as good
TRIED = 200  # rows of the trial, of which no chunk of 64 is full at the end
MOST_APART = 1e-2


def guard(problem: Problem) -> Refusal | None:
    dims = (problem.key_dim, problem.value_dim)
    return first_refusal(
        (
            refuse_unless(problem.dtype in TYPES, f"qkv is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(problem.rows >= MIN_ROWS, f"{problem.rows} rows; at least {MIN_ROWS}"),
            refuse_unless(all(d in DIMS for d in dims), f"heads of {dims}; of {', '.join(map(str, DIMS))}"),
            refuse_unless(
                problem.value_heads % problem.key_heads == 0,
                f"{problem.value_heads} value heads of {problem.key_heads} key heads; a multiple",
            ),
        )
    ) or _refused(problem)


def _refused(problem: Problem) -> Refusal | None:
    if problem.device != "cuda":  # the machine refuses before the guard is asked
        return None
    shape = (problem.key_heads, problem.value_heads, problem.key_dim, problem.value_dim, problem.conv_width)
    reason = trial(*shape, problem.dtype)
    return Refusal(reason) if reason else None


@cache
def trial(
    key_heads: int, value_heads: int, key_dim: int, value_dim: int, width: int, dtype: str, device: str = "cuda"
) -> str:
    """Why the library does not compute such heads here; empty where it does, as near to torch's form as it promises."""
    import torch

    from kernels.gdn import Layer

    draw, kind = torch.Generator(device).manual_seed(1), getattr(torch, dtype)
    channels = 2 * key_heads * key_dim + value_heads * value_dim

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, generator=draw)

    rows = normal(TRIED, channels + 2 * value_heads).to(kind)
    layer = Layer(normal(channels, width) * 0.5, normal(value_heads) - 4, normal(value_heads))
    starts = normal(width - 1, channels).to(kind), normal(value_heads, key_dim, value_dim)
    operands = (*rows.split((channels, value_heads, value_heads), 1), layer, *starts)
    try:
        pairs = list(zip(run(*operands), chunked.run(*operands), strict=True))
    except Exception as error:  # whatever a compiler of the library raises: torch's form is there
        return f"fla-core fails: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    apart = max(float((found.float() - want.float()).norm() / want.float().norm()) for found, want in pairs)
    return "" if apart < MOST_APART else f"fla-core is {apart:.2g} from torch's form for heads of {key_dim}"


def run(
    qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, history: torch.Tensor, before: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    from fla.modules.causal_conv1d import causal_conv1d  # on first use, so that listing schedules loads no library
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from torch.nn.functional import pad, rms_norm

    from kernels.prefill_gdn.delta import gates

    # The library keeps as many inputs as there are taps; the oldest is never read.
    inputs = pad(history.T, (1, 0))[None]
    convolved = causal_conv1d(qkv[None], weight=layer.conv_weight, initial_state=inputs, activation="silu")[0][0]
    q, k, v = split_heads(convolved, before)
    # x / |x| is the RMS norm over the root of the dimension. The library's own kernel is tuned anew for many a length.
    dim = q.shape[-1]
    q, k = (rms_norm(x, (dim,), eps=EPS / dim)[None] for x in (q, k))
    g, beta = gates(a, b, layer.a_log, layer.dt_bias)
    out, after = chunk_gated_delta_rule(
        q,
        k * dim**-0.5,
        v[None],
        g[None],
        beta[None],
        scale=1 / dim,
        initial_state=before[None],
        output_final_state=True,
    )
    return out[0], after[0]


SCHEDULE = Schedule(
    name="fla",
    revision=1,
    contract=Bound(rel_l2=1e-2, statement="16-bit products within a chunk, FP32 states, gates and sums"),
    guard=guard,
    run=run,
    machine=HOPPER,
    library=Library("fla", "fla-core"),
    summary="flash-linear-attention's chunked kernels",
)

"""The default GDN verification: torch operations in FP32, row after row.

Per row one scaling, two small products and one update of rank one, for all heads at once; none of their shapes depends
on the number of rows, so neither do a row's bytes. On the CPU a row's state is computed in the slot that keeps it;
elsewhere the host must not read the slot table, and every state is stored behind its computation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.gdn.problem import Layer, Problem, State
from kernels.gdn.reference import unit
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def convolve(qkv: torch.Tensor, layer: Layer, state: State) -> torch.Tensor:
    """SiLU of the convolution [R, C], rounded to the dtype of qkv, in FP32; the window moves on."""
    import torch  # on first use, so that listing schedules does not load it

    (rows, _), width, float32 = qkv.shape, layer.conv_weight.shape[1], state.pool.dtype
    # Indices instead of a slice: the selector stays on its device.
    columns = state.selector.long() + torch.arange(-1, width - 2, device=qkv.device)
    inputs = torch.cat((state.window.T.index_select(0, columns), qkv))
    wide, taps = inputs.to(float32), layer.conv_weight.T.to(float32).contiguous()
    total = wide[:rows] * taps[0]
    for tap in range(1, width):
        total.addcmul_(wide[tap : tap + rows], taps[tap])
    state.window[:, : rows + width - 2] = inputs[1:].T
    return torch.nn.functional.silu(total, inplace=True).to(qkv.dtype).to(float32)


def heads(convolved: torch.Tensor, pool: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q (scaled), k [R, Hv, 1, Dk] repeated per value head, v [R, Hv, 1, Dv]."""
    _, value_heads, key_dim, value_dim = pool.shape
    qk, v = convolved.split((convolved.shape[1] - value_heads * value_dim, value_heads * value_dim), -1)
    qk = unit(qk.unflatten(-1, (-1, 1, key_dim)))
    group = 2 * value_heads // qk.shape[1]
    q, k = (qk.repeat_interleave(group, 1) if group > 1 else qk).chunk(2, 1)
    return q * key_dim**-0.5, k, v.unflatten(-1, (value_heads, 1, value_dim))


def gates(a: torch.Tensor, b: torch.Tensor, layer: Layer, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """exp(g) and beta [R, Hv, 1, 1] FP32."""
    from torch.nn.functional import softplus  # on first use, so that listing schedules does not load torch

    a, b, a_log, dt_bias = (x.to(like.dtype) for x in (a, b, layer.a_log, layer.dt_bias))
    decay = (softplus(a + dt_bias) * -a_log.exp()).exp()
    return decay[..., None, None], b.sigmoid()[..., None, None]


def places(state: State, rows: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The selected state [Hv, Dk, Dv], and where each row's state is computed."""
    pool = state.pool
    if pool.device.type == "cpu":
        slots = state.slot_table.tolist()
        # A padding entry keeps nothing.
        own = [pool[slot] if slot >= 0 else pool.new_empty(pool.shape[1:]) for slot in slots[:rows]]
        return pool[slots[int(state.selector) - 1]], own
    slot = state.slot_table.index_select(0, state.selector.long() - 1)
    return pool.index_select(0, slot.long())[0], list(pool.new_empty(rows, *pool.shape[1:]))


def store(state: State, row: int, current: torch.Tensor) -> None:
    """Write one row's state to its slot; a padding entry rewrites slot 0 with what slot 0 holds."""
    slot = state.slot_table[row : row + 1].long()
    kept = state.pool.index_select(0, slot.clamp(min=0))
    state.pool.index_copy_(0, slot.clamp(min=0), current[None].where(slot[:, None, None, None] >= 0, kept))


def run(qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, state: State) -> torch.Tensor:
    """`qkv` [R, C], `a` and `b` [R, Hv] -> out [R, Hv, Dv] in the dtype of qkv; window and slots are written."""
    import torch  # on first use, so that listing schedules does not load it

    q, k, v = heads(convolve(qkv, layer, state), state.pool)
    decay, beta = gates(a, b, layer, state.pool)
    out = torch.empty_like(v)
    before, states = places(state, len(out))
    rows = (x.unbind() for x in (decay, v * beta, k * -beta, k.mT, q, out))
    for current, factor, value, minus_key, key, query, place in zip(states, *rows, strict=True):
        torch.mul(before, factor, out=current)
        delta = torch.baddbmm(value, minus_key, current)
        current.baddbmm_(key, delta)
        torch.bmm(query, current, out=place)
        before = current
    if state.pool.device.type != "cpu":
        for row, current in enumerate(states):
            store(state, row, current)
    return out[:, :, 0].to(qkv.dtype)


SCHEDULE = Schedule(
    name="sequential",
    revision=2,
    contract=Bound(
        rel_l2=2e-3, float32=1e-5, statement="FP32 state, gates and sums in the library's order, one rounding of out"
    ),
    guard=guard,
    run=run,
    summary="torch, one row after another",
)

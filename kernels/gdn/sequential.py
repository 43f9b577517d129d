"""The default GDN verification: torch operations in FP32, row after row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.gdn.problem import Layer, Problem, State
from kernels.gdn.reference import convolve, gates, split_heads
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def initial_state(state: State) -> torch.Tensor:
    """A copy of the selected slot [Hv, Dk, Dv]; no value is read on the host."""
    slot = state.slot_table.index_select(0, state.selector.long() - 1)
    return state.pool.index_select(0, slot.long())[0]


def store(state: State, row: int, current: torch.Tensor) -> None:
    """Write one row's state to its slot; a padding entry rewrites slot 0 with what slot 0 holds."""
    slot = state.slot_table[row : row + 1].long()
    kept = state.pool.index_select(0, slot.clamp(min=0))
    state.pool.index_copy_(0, slot.clamp(min=0), current[None].where(slot[:, None, None, None] >= 0, kept))


def run(qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, state: State) -> torch.Tensor:
    """`qkv` [R, C], `a` and `b` [R, Hv] -> out [R, Hv, Dv] in the dtype of qkv; window and slots are written."""
    float32 = state.pool.dtype
    convolved, window = convolve(qkv, layer, state, float32)
    q, k, v = split_heads(convolved, state.pool, float32)
    decay, beta = gates(a, b, layer, float32)
    current = initial_state(state)
    out = qkv.new_empty(v.shape)
    for row in range(qkv.shape[0]):
        key = k[row, :, :, None]
        current = current * decay[row, :, None, None]
        delta = (v[row] - (current * key).sum(1)) * beta[row, :, None]
        current = current + key * delta[:, None]
        out[row] = (current * q[row, :, :, None]).sum(1)
        store(state, row, current)
    state.window.copy_(window)
    return out


SCHEDULE = Schedule(
    name="sequential",
    revision=1,
    contract=Bound(rel_l2=2e-3, statement="FP32 state, gates and sums in the library's order, one rounding of out"),
    guard=guard,
    run=run,
    summary="torch, one row after another",
)

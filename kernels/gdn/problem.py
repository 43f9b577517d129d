"""The operands of GDN verification grouped by owner, and the shapes and layout a schedule may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Layer:
    """What one GDN layer owns: `conv_weight` [C, W] (no bias), `a_log` [Hv] and `dt_bias` [Hv]."""

    conv_weight: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor


@dataclass(frozen=True, eq=False)
class State:
    """What one request owns in that layer; a run reads and writes it in place.

    `window` [C, W - 1 + T - 1] holds raw convolution inputs in the dtype of the projections, T the length of the slot
    table. `pool` [slots, Hv, Dk, Dv] is FP32 and shared with other requests. `slot_table` int32 [T] names this
    request's slots, -1 a padding entry. `selector` int32 [1] in 1..T says how many rows the last run had accepted.
    """

    window: torch.Tensor
    pool: torch.Tensor
    slot_table: torch.Tensor
    selector: torch.Tensor


@dataclass(frozen=True)
class Problem:
    """`rows` packed rows of q ‖ k ‖ v; `row_strides` count elements between rows of qkv, a and b."""

    rows: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int = 4
    table_slots: int = 8
    dtype: str = "float32"
    weight_dtype: str = "float32"
    row_strides: tuple[int, int, int] | None = None
    device: str = "cpu"
    arch: str = ""

    @property
    def channels(self) -> int:
        """Channels of q ‖ k ‖ v."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


def problem_of(qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, state: State) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    _, value_heads, key_dim, value_dim = state.pool.shape
    channels, width = layer.conv_weight.shape
    keys = channels - value_heads * value_dim
    assert qkv.shape[1] == channels and keys % (2 * key_dim) == 0, f"qkv {qkv.shape}, pool {state.pool.shape}"
    slots = state.slot_table.shape[0]
    columns = width - 1 + slots - 1
    assert state.window.shape == (channels, columns), f"window {state.window.shape} is not {channels} x {columns}"
    assert state.window.dtype == qkv.dtype, f"window {state.window.dtype}, qkv {qkv.dtype}"
    assert state.pool.is_contiguous() and state.window.is_contiguous(), "pool and window must be contiguous"
    assert 1 <= qkv.shape[0] <= slots, f"{qkv.shape[0]} rows, {slots} slots"
    device = qkv.device.type
    return Problem(
        rows=qkv.shape[0],
        key_heads=keys // (2 * key_dim),
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        conv_width=width,
        table_slots=slots,
        dtype=str(qkv.dtype).removeprefix("torch."),
        weight_dtype=str(layer.conv_weight.dtype).removeprefix("torch."),
        row_strides=(qkv.stride(0), a.stride(0), b.stride(0)),
        device=device,
        arch=arch_of(device, qkv.device.index),
    )

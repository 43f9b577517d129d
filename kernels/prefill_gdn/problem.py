"""The shapes a schedule of prompt GDN may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch

    from kernels.gdn import Layer


@dataclass(frozen=True)
class Problem:
    """`rows` tokens of q ‖ k ‖ v."""

    rows: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int = 4
    dtype: str = "float32"
    device: str = "cpu"
    arch: str = ""


def problem_of(qkv: torch.Tensor, layer: Layer, before: torch.Tensor) -> Problem:
    """The problem of these operands; reads shapes, never values."""
    value_heads, key_dim, value_dim = before.shape
    channels, width = layer.conv_weight.shape
    keys = channels - value_heads * value_dim
    assert qkv.shape[1] == channels and keys % (2 * key_dim) == 0, f"qkv {qkv.shape}, state {before.shape}"
    device = qkv.device.type
    return Problem(
        rows=qkv.shape[0],
        key_heads=keys // (2 * key_dim),
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        conv_width=width,
        dtype=str(qkv.dtype).removeprefix("torch."),
        device=device,
        arch=arch_of(device, qkv.device.index),
    )

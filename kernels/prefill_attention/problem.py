"""The shapes and layout a schedule of prompt attention may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Problem:
    """`rows` queries, the last ones of `keys` tokens; `dtype` is that of q, k and v."""

    rows: int
    keys: int
    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: str = "float32"
    device: str = "cpu"
    arch: str = ""

    @property
    def past(self) -> int:
        """Keys that every row sees: those before the chunk."""
        return self.keys - self.rows


def problem_of(q: torch.Tensor, k: torch.Tensor) -> Problem:
    """The problem of these operands; reads shapes, never values."""
    assert 0 < q.shape[0] <= k.shape[0] and q.shape[2] == k.shape[2], f"q {tuple(q.shape)}, k {tuple(k.shape)}"
    assert q.dtype == k.dtype, f"q is {q.dtype}, k is {k.dtype}"
    device = q.device.type
    return Problem(
        rows=q.shape[0],
        keys=k.shape[0],
        q_heads=q.shape[1],
        kv_heads=k.shape[1],
        head_dim=q.shape[2],
        dtype=str(q.dtype).removeprefix("torch."),
        device=device,
        arch=arch_of(device, q.device.index),
    )

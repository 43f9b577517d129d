"""What a commit writes, and the shapes a schedule may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


class Window(NamedTuple):
    """Context `rows` [layers, 2, T, Hkv, D] of the verified rows and where the kept ones go.

    `rings`: K and V [slots, Hkv, D] of each layer, position p in slot p % slots; `length` int64 [1] of what they hold.
    """

    rows: torch.Tensor
    rings: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    length: torch.Tensor


@dataclass(frozen=True)
class Problem:
    """`rows` of K and V of `layers` layers, 0 of a request that drafts nothing; `cache` is the rings' dtype."""

    layers: int
    rows: int
    row_bytes: int
    dtype: str = "float32"
    cache: str = "float32"
    slots: tuple[int, ...] = ()
    dense: bool = True
    device: str = "cpu"
    arch: str = ""


def problem_of(packed: torch.Tensor, window: Window | None) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    device, arch = packed.device.type, arch_of(packed.device.type, packed.device.index)
    if window is None:
        return Problem(0, 0, 0, device=device, arch=arch)
    rows, rings = window.rows, window.rings
    assert rows.shape[0] == len(rings), f"context of {rows.shape[0]} layers for {len(rings)} rings"
    return Problem(
        layers=len(rings),
        rows=rows.shape[2],
        row_bytes=rows[0, 0, 0].numel() * rows.element_size(),
        dtype=str(rows.dtype).removeprefix("torch."),
        cache=str(rings[0][0].dtype).removeprefix("torch."),
        slots=tuple(len(k) for k, _ in rings),
        dense=rows.is_contiguous() and all(part.is_contiguous() for pair in rings for part in pair),
        device=device,
        arch=arch,
    )

"""What a walk depends on besides its lattice, and the shapes a schedule may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


class Draws(NamedTuple):
    """On the device: `seed` [1] and `start` [1] int64, `temperature` [1] FP64. `start` is the last known position.

    A greedy walk ignores seed and temperature.
    """

    seed: torch.Tensor
    start: torch.Tensor
    temperature: torch.Tensor
    greedy: bool


@dataclass(frozen=True)
class Problem:
    """`rows` of `width` candidates each; `dense`: scores, and every row of candidates, are contiguous."""

    rows: int
    width: int
    greedy: bool
    dtype: str = "float32"
    dense: bool = True
    device: str = "cpu"
    arch: str = ""


def problem_of(scores: torch.Tensor, candidates: torch.Tensor, draws: Draws) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    rows, width = candidates.shape
    assert scores.shape == (rows, width, width), f"scores {tuple(scores.shape)} of {rows} x {width} candidates"
    device = scores.device.type
    return Problem(
        rows=rows,
        width=width,
        greedy=draws.greedy,
        dtype=str(scores.dtype).removeprefix("torch."),
        dense=scores.is_contiguous() and candidates.stride(-1) == 1,
        device=device,
        arch=arch_of(device, scores.device.index),
    )

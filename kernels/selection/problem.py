"""What selection returns, and the shapes and layout a schedule may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


class Candidates(NamedTuple):
    """`values` FP32 and `ids` int64, both [R, k + 1], in dense tie order; the last column is the probe."""

    values: torch.Tensor
    ids: torch.Tensor


@dataclass(frozen=True)
class Problem:
    """The `k` best and a probe of each of `rows` rows of `vocab` logits; `row_stride` counts elements."""

    rows: int
    vocab: int
    k: int
    dtype: str = "float32"
    row_stride: int | None = None
    device: str = "cpu"
    arch: str = ""


def problem_of(logits: torch.Tensor, k: int) -> Problem:
    """The problem of `logits` [R, V]; reads shapes and strides, never values."""
    rows, vocab = logits.shape
    assert 1 <= k < vocab, f"{k} candidates and a probe of {vocab} logits"
    assert logits.stride(1) == 1, f"logits with strides {logits.stride()}"
    device = logits.device.type
    return Problem(
        rows=rows,
        vocab=vocab,
        k=k,
        dtype=str(logits.dtype).removeprefix("torch."),
        row_stride=logits.stride(0),
        device=device,
        arch=arch_of(device, logits.device.index),
    )

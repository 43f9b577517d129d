"""What a verdict is made of, and the shapes a schedule may look at before it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernels.native.machine import arch_of

if TYPE_CHECKING:
    import torch


class Best(NamedTuple):
    """Of n + 1 rows: `values` FP32 and `ids` int64 [n + 1, m] in dense tie order, and `largest` FP32 [n + 1].

    `largest` is that of the whole vocabulary by torch's order, in which a NaN is the largest.
    """

    values: torch.Tensor
    ids: torch.Tensor
    largest: torch.Tensor


class Chain(NamedTuple):
    """Drafted `tokens` int64 [n] and the law each was drawn from: `q` FP64 [n, K] on `ids` int64 [n, K]."""

    tokens: torch.Tensor
    ids: torch.Tensor
    q: torch.Tensor


@dataclass(frozen=True)
class Rule:
    """How a request samples (`runtime.speculation.sampling`). `complete`: the support is the whole vocabulary."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    complete: bool

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Problem:
    """`rows` of a `support` of best logits, one row more than there are drafts, each from a law on `width` tokens.

    `dense`: everything, of the draft ids every row, is contiguous.
    """

    rows: int
    support: int
    width: int
    greedy: bool
    dtype: str = "float32"
    dense: bool = True
    device: str = "cpu"
    arch: str = ""


def problem_of(best: Best, chain: Chain, rule: Rule) -> Problem:
    """The problem of these operands; reads shapes and strides, never values."""
    (rows, support), width = best.values.shape, chain.ids.shape[-1]
    assert chain.tokens.shape == (rows - 1,), f"{tuple(chain.tokens.shape)} drafts for {rows} rows"
    assert chain.q.shape == chain.ids.shape == (rows - 1, width), f"laws {tuple(chain.q.shape)}"
    device = best.values.device.type
    return Problem(
        rows=rows,
        support=support,
        width=width,
        greedy=rule.greedy,
        dtype=str(best.values.dtype).removeprefix("torch."),
        dense=all(part.is_contiguous() for part in (*best, chain.tokens, chain.q)) and chain.ids.stride(-1) == 1,
        device=device,
        arch=arch_of(device, best.values.device.index),
    )

"""What a sampler may ask of logits, wherever they lie: the best k of each row, masks, penalties,
whole rows, their soundness.

On one rank the logits [R, V] are whole. Sharded over ranks, each holds the columns of its own part of the vocabulary,
[R, V / ranks], and the parts are equal and in the order of the ids. Only candidates travel: every rank sends its own
best k and the probe behind them, and all merge them alike. Whole rows travel where a sampler cannot do without: a cut
that splits a tie, or no top-k at all. Knows no laws and no requests.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernels import selection
from kernels.selection import Candidates
from runtime.operators import Operators
from runtime.speculation.penalties import Rows

if TYPE_CHECKING:
    from runtime.models.parallel import Group

MOST_PIECE = 1024  # a power of two


class Vocabulary:
    """The vocabulary of an engine of one rank."""

    def __init__(self, size: int, operators: Operators) -> None:
        self.size, self._operators = size, operators
        self.gathered = 0
        """How often whole rows were asked for. The decoder counts: a replayed graph runs none of this code."""

    def best(self, logits: Tensor, k: int) -> Candidates:
        """The first k + 1 of each row in dense tie order, with global ids; all of them where there are no more."""
        return self._own(logits, k)

    def whole(self, logits: Tensor) -> Tensor:
        """The rows [R, V]."""
        return logits

    def masked(self, logits: Tensor, allowed: Tensor) -> Tensor:
        """-inf where `allowed` [R, V] is false."""
        return logits.masked_fill(~allowed.to(logits.device), float("-inf"))

    def penalised(self, logits: Tensor, rows: Rows) -> Tensor:
        """What `rows` make of `logits` [R, V]."""
        return rows.applied(logits)

    def largest(self, logits: Tensor) -> Tensor:
        """Of each row [R]; a NaN is the largest of its row.

        In pieces first: torch gives few rows few blocks, which took 40 us on an H200.
        """
        pieces = math.gcd(logits.shape[-1], MOST_PIECE)
        return logits.unflatten(-1, (-1, pieces)).amax(-1).amax(-1) if logits.is_cuda else logits.amax(-1)

    def counters(self) -> list[dict[str, Any]]:
        """What travelled besides candidates, in the form of route counters."""
        return []

    def _own(self, logits: Tensor, k: int) -> Candidates:
        if k >= logits.shape[-1]:
            return Candidates(*logits.sort(dim=-1, descending=True, stable=True))
        return self._operators.run("selection", selection.OP, selection.problem_of(logits, k), logits, k)


class ShardedVocabulary(Vocabulary):
    """One rank's part; every method is called by all ranks at the same point."""

    def __init__(self, size: int, operators: Operators, group: Group) -> None:
        super().__init__(size, operators)
        self._group, self._width = group, size // group.size
        self._first = group.rank * self._width

    def best(self, logits: Tensor, k: int) -> Candidates:
        own = self._own(logits, k)
        # Values and ids in one message, as 32-bit words.
        words = torch.cat((own.values.view(torch.int32), (own.ids + self._first).int()), -1)
        parts = [part.split(own.ids.shape[-1], -1) for part in self._group.gather(words)]
        values = torch.cat([value.view(torch.float32) for value, _ in parts], -1)
        ids = torch.cat([ids for _, ids in parts], -1).long()
        # Ranks are in the order of ids and each part is in dense tie order, so a stable sort of values is too.
        values, places = values.sort(dim=-1, descending=True, stable=True)
        return Candidates(values[:, : k + 1].contiguous(), ids.gather(-1, places[:, : k + 1]))

    def whole(self, logits: Tensor) -> Tensor:
        return torch.cat(self._group.gather(logits), -1)

    def masked(self, logits: Tensor, allowed: Tensor) -> Tensor:
        return super().masked(logits, allowed[..., self._first : self._first + self._width])

    def penalised(self, logits: Tensor, rows: Rows) -> Tensor:
        return rows.columns(self._first, self._width).applied(logits)

    def counters(self) -> list[dict[str, Any]]:
        row = {"rank": self._group.rank, "operator": "vocabulary", "schedule": "gathered", "hits": self.gathered}
        return [row]

    def largest(self, logits: Tensor) -> Tensor:
        return torch.stack(self._group.gather(super().largest(logits))).amax(0)

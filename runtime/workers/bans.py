"""Tokens that a request keeps out of its answer: all but an allow list, the ends before `min_tokens`, texts.

Each is a `TokenGate` of the engine. A text is kept out wherever its bytes would come together, however the tokens cut
them, so that no spelling slips through. Knows no grammar and no logits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, reduce

import torch
from torch import Tensor

from runtime.engine.sequence import TokenGate


class AllowedTokens:
    """Nothing but `ids` of `vocab_size`, at every position."""

    def __init__(self, ids: Sequence[int], vocab_size: int) -> None:
        self._row = torch.zeros(vocab_size, dtype=torch.bool)
        self._row[list(ids)] = True

    def allowed(self, drafts: Sequence[int]) -> Tensor:
        return self._row.expand(len(drafts) + 1, -1)

    def advance(self, tokens: Sequence[int]) -> None:
        pass


class MinTokens:
    """No token of `ends` before `count` tokens have come."""

    def __init__(self, count: int, ends: Sequence[int], vocab_size: int) -> None:
        self._left = count
        self._ends = list(ends)
        self._vocab_size = vocab_size

    def allowed(self, drafts: Sequence[int]) -> Tensor:
        rows = torch.ones(len(drafts) + 1, self._vocab_size, dtype=torch.bool)
        rows[: max(self._left, 0), self._ends] = False
        return rows

    def advance(self, tokens: Sequence[int]) -> None:
        self._left -= len(tokens)


class Texts:
    """One vocabulary as bytes: which tokens hold a text, and which begin with one."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tuple(tokens)
        self._order = sorted(range(len(tokens)), key=lambda i: self.tokens[i])
        self._sorted = [self.tokens[i] for i in self._order]
        self.starting = cache(self._starting)

    def holding(self, text: bytes) -> list[int]:
        return [i for i, token in enumerate(self.tokens) if text in token]

    def _starting(self, text: bytes) -> list[int]:
        """A sorted list holds what begins alike side by side."""
        first = bisect_left(self._sorted, text)
        last = first
        while last < len(self._sorted) and self._sorted[last].startswith(text):
            last += 1
        return self._order[first:last]


class BadWords:
    """No token that would complete one of `words`, alone or with the tokens before it in this answer."""

    def __init__(self, words: Sequence[str], texts: Texts) -> None:
        self._words = [word.encode() for word in words]
        self._texts = texts
        self._always = torch.ones(len(texts.tokens), dtype=torch.bool)
        for word in self._words:
            self._always[texts.holding(word)] = False
        self._reach = max(map(len, self._words)) - 1
        self._tail = b""

    def allowed(self, drafts: Sequence[int]) -> Tensor:
        rows, tail = [self._row(self._tail)], self._tail
        for draft in drafts:
            tail = self._after(tail, draft)
            rows.append(self._row(tail))
        return torch.stack(rows)

    def advance(self, tokens: Sequence[int]) -> None:
        self._tail = reduce(self._after, tokens, self._tail)

    def _after(self, tail: bytes, token: int) -> bytes:
        text = tail + self._texts.tokens[token]
        return text[len(text) - self._reach :] if len(text) > self._reach else text

    def _row(self, tail: bytes) -> Tensor:
        row = self._always.clone()
        for word in self._words:
            for begun in range(1, len(word)):
                if tail.endswith(word[:begun]):
                    row[self._texts.starting(word[begun:])] = False
        return row


class Together:
    """What all of `gates` allow."""

    def __init__(self, gates: Sequence[TokenGate]) -> None:
        self._gates = gates

    def allowed(self, drafts: Sequence[int]) -> Tensor:
        return reduce(torch.logical_and, (gate.allowed(drafts) for gate in self._gates))

    def advance(self, tokens: Sequence[int]) -> None:
        for gate in self._gates:
            gate.advance(tokens)

"""What a request does to the target's logits by token, and by how often each token came before.

In vLLM's order: a bias is added; the repetition penalty divides positive logits and multiplies others of every token of
prompt and answer (CTRL, Keskar et al. 2019); the frequency penalty is subtracted once for every time that a token
stands in the answer, the presence penalty once if it stands there at all (OpenAI's API). A verified row stands behind
the drafts before it and counts them as if they were the answer: under rejection sampling that is the law of the row.
Knows no cuts, no drafter and no ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.errors import RequestError


@dataclass(frozen=True)
class Penalties:
    """`presence` and `frequency` are subtracted, `bias` (token, addend) is added, `repetition` is above 0."""

    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.repetition < float("inf"):
            raise RequestError(f"repetition_penalty is {self.repetition}; it is a finite number above 0")


class History:
    """Counts of one request's tokens over the whole vocabulary, and what `penalties` make of them."""

    def __init__(self, penalties: Penalties, prompt: Sequence[int], vocab_size: int, device: torch.device) -> None:
        self._penalties = penalties
        self._in_prompt = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        self._in_prompt[torch.tensor(prompt, device=device)] = True
        self._counts = torch.zeros(vocab_size, dtype=torch.int32, device=device)
        self._bias = torch.zeros(vocab_size, device=device)
        for token, bias in penalties.bias:
            self._bias[token] = bias

    def append(self, tokens: Sequence[int]) -> None:
        """These tokens were emitted."""
        new = torch.tensor(tokens, dtype=torch.long, device=self._counts.device)
        self._counts.index_add_(0, new, torch.ones_like(new, dtype=torch.int32))

    def rows(self, drafts: Tensor) -> "Rows":
        """What holds behind the answer and, row by row, behind the first 0, 1, … of `drafts` [n]."""
        counts = self._counts.repeat(len(drafts) + 1, 1)
        for row in range(len(drafts)):
            behind = counts[row + 1 :]
            behind.index_add_(1, drafts[row : row + 1], behind.new_ones(len(behind), 1))
        return Rows(self._penalties, self._bias.expand_as(counts), self._in_prompt.expand_as(counts), counts)


@dataclass(frozen=True)
class Rows:
    """Bias [R, V] FP32, whether the prompt holds each token [R, V], how often the answer does [R, V]."""

    penalties: Penalties
    bias: Tensor
    in_prompt: Tensor
    counts: Tensor

    def columns(self, first: int, width: int) -> "Rows":
        """The part of the vocabulary from token `first` on."""
        parts = (rows[:, first : first + width] for rows in (self.bias, self.in_prompt, self.counts))
        return Rows(self.penalties, *parts)

    def applied(self, logits: Tensor) -> Tensor:
        """The FP32 `logits` [R, V] of these rows, changed."""
        asked, came = self.penalties, self.counts > 0
        logits = logits + self.bias
        if asked.repetition != 1:
            weighed = torch.where(logits > 0, logits / asked.repetition, logits * asked.repetition)
            logits = torch.where(self.in_prompt | came, weighed, logits)
        return logits - asked.frequency * self.counts - asked.presence * came

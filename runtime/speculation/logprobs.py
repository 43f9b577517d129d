"""Log-probabilities of tokens that were drawn, and of the most probable ones beside them. Knows no drafts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from kernels.accept.laws import Distribution
from kernels.accept.rejection import probability_of

LEAST = -9999.0
"""Stands for what JSON cannot say: a probability of 0, as in OpenAI's answers."""


@dataclass(frozen=True)
class LogprobsOrder:
    """`top` alternatives per token, of the model's own softmax or of the law that the request samples from."""

    top: int
    of_sampled_law: bool = False


class TokenLogprobs(NamedTuple):
    """Log-probability of a token, and (id, log-probability) of the most probable ones, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprobs(law: Distribution, tokens: Sequence[int], top: int) -> tuple[TokenLogprobs, ...]:
    """Row i of `law` [R, m] for `tokens` [R]. Tokens without mass are not among the alternatives."""
    drawn = probability_of(law.ids, law.p, torch.tensor(tokens, device=law.ids.device)).tolist()
    ids, best = law.ids[:, :top].tolist(), law.p[:, :top].tolist()
    return tuple(
        TokenLogprobs(_log(p), tuple((one, _log(q)) for one, q in zip(*row, strict=True) if q > 0))
        for p, row in zip(drawn, zip(ids, best, strict=True), strict=True)
    )


def _log(p: float) -> float:
    return math.log(p) if p > 0 else LEAST

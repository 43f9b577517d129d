"""Quantiles that say when they mean nothing: linear as numpy and vLLM do, refused where too few values stand behind.

A quantile q of n values is refused when n·(1−q) < 1 and of low confidence when it is < 5: a p99 needs 100 values and
is better with 500.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np

METHOD = "linear"


class Confidence(StrEnum):
    OK = "ok"
    LOW = "low-confidence"
    REFUSED = "refused"


@dataclass(frozen=True)
class Quantile:
    q: float
    value: float | None  # None where there is no value at all; a refused one keeps its value
    n: int
    confidence: Confidence

    @property
    def shown(self) -> float | None:
        """The value, unless it is refused."""
        return None if self.confidence is Confidence.REFUSED else self.value


def confidence(n: int, q: float) -> Confidence:
    behind = n * (1 - q)
    # 100·(1−0.99) is 1.0000000000000009 in binary, 1000·(1−0.999) 1.0000000000000009 too: no value is lost to rounding.
    if behind < 1 - 1e-9:
        return Confidence.REFUSED
    return Confidence.LOW if behind < 5 - 1e-9 else Confidence.OK


def quantile(values: Sequence[float], q: float) -> Quantile:
    found = float(np.quantile(np.asarray(values, dtype=float), q)) if len(values) else None
    return Quantile(q, found, len(values), confidence(len(values), q))


def median_quantile(per_request: Sequence[float], rounds_per_request: Sequence[int], q: float) -> Quantile:
    """Median over requests of each request's own quantile; what counts is how many rounds a request has."""
    n = int(np.median(rounds_per_request)) if rounds_per_request else 0
    found = float(np.median(per_request)) if len(per_request) else None
    return Quantile(q, found, n, confidence(n, q))


def interval(
    values: Sequence[float], q: float, *, lag1: float = 0.0, level: float = 0.95
) -> tuple[float, float] | None:
    """Order statistics with binomial ranks; `lag1`, the autocorrelation, makes n smaller. None where ranks run out."""
    n = len(values)
    n_eff = n * (1 - lag1) / (1 + lag1) if -1 < lag1 < 1 else 0.0
    if n_eff <= 0:
        return None
    half = NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(n_eff * q * (1 - q)) * n / n_eff
    low, high = math.floor(n * q - half), math.ceil(n * q + half)
    if low < 1 or high > n:
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    return float(ordered[low - 1]), float(ordered[high - 1])

"""What a time is a time of. Figures of different scopes stand side by side and are never pooled, compared or divided.

A request average ends in a different place than a round, a client stamp differs from an engine's, and a profiled run
is slower than the run it explains: the scope travels with the values, and mixing two is an error, not a warning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    REQUEST_AVERAGE_ENGINE = "request-average, engine"
    REQUEST_AVERAGE_CLIENT = "request-average, client"
    ROUND_ENGINE = "round, engine-step"
    ROUND_CLIENT = "round, sse-chunk"
    PROFILED = "profiled"

    @property
    def column(self) -> str:
        """The part of a column name that tells this scope from the others."""
        return self.value.replace(", ", "_").replace("-", "_")


class ScopeMismatch(TypeError):
    """Two scopes met in one figure: a bug of the caller."""


@dataclass(frozen=True)
class Series:
    """Times of one scope, in ms."""

    scope: Scope
    values_ms: tuple[float, ...]

    def __add__(self, other: Series) -> Series:
        """Pooled with `other`."""
        self._require(other)
        return Series(self.scope, self.values_ms + other.values_ms)

    def log_ratios(self, base: Series) -> tuple[float, ...]:
        """ln(self/base), value by value."""
        self._require(base)
        return tuple(math.log(a / b) for a, b in zip(self.values_ms, base.values_ms, strict=True))

    def _require(self, other: Series) -> None:
        if self.scope is not other.scope:
            raise ScopeMismatch(f"{self.scope.value!r} and {other.scope.value!r} cannot be put into one figure")


def pooled(series: Sequence[Series]) -> Series:
    """All values of one scope; ScopeMismatch where there are two."""
    return sum(series[1:], start=series[0])

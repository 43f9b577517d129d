"""Looking after every startup without being fooled: how small p must be at each look, so that all looks together err as
rarely as one would.

Error spending (Lan and DeMets 1983): after n of at most N startups the share n/N of the error rate is spent (the power
family of Kim and DeMets 1987 with exponent 1: a large effect ends a campaign at once, the last look keeps most of its
power). Which p spends it follows exactly for t with few degrees of freedom, because under equal arms the t statistics
of successive looks are a Markov chain (Jennison and Turnbull 1991, "Exact calculations for repeated t, chi-squared and
F tests", Biometrika 78). With x the effects of n startups and sin a = sum(x) / sqrt(n sum(x^2)), t is sqrt(n - 1) tan
a; the next effect in units of |x| is t_n / sqrt(n) = tan b, independent of a, and the next angle is given by
sin a' = (sqrt(n) sin a cos b + sin b) / sqrt(n + 1). The chain is followed on bins of a.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from campaigns.judging.decision import Floats, t_quantile

_BINS = 48  # of angles on one side; 192 change no level by more than 2 %
_NODE = 1 / math.sqrt(3)  # of Gauss's two points in a bin, in half bins
_NEVER = 1e-9  # the two-sided p beyond which no path is followed where nobody looks


@dataclass(frozen=True)
class Looks:
    """A verdict is asked after each startup from `first` to `last`."""

    first: int
    last: int

    def level(self, n_startups: int, alpha: float) -> float:
        """The two-sided p that counts now, where all looks together may err with `alpha`; 0 before the first."""
        if n_startups < self.first:
            return 0.0
        return _levels(self.first, self.last, alpha)[min(n_startups, self.last) - self.first]

    def number(self, n_startups: int) -> int:
        """Which look this is, from 1; 0 before the first."""
        return max(0, n_startups - self.first + 1)

    @property
    def most(self) -> int:
        return self.number(self.last)


@cache
def _levels(first: int, last: int, alpha: float) -> tuple[float, ...]:
    return tuple(spent_at(range(first, last + 1), lambda share: alpha * share))


def spent_at(looks: range, spend: Callable[[float], float]) -> Iterator[float]:
    """The two-sided p of each look; `spend` maps the share of the startups to the error rate that is spent by then."""
    first, last = looks[0], looks[-1]
    level = spend(first / last)
    yield level
    edges = np.linspace(0.0, _angle(level, first), _BINS + 1)
    mass = np.diff(2 * _cdf(np.tan(edges), first - 1))
    spent = level
    for n in range(first + 1, last + 1):
        nodes, weights = _nodes(edges, mass)
        bound = _angle(_NEVER, n)
        if n in looks:
            bound = _crossed_by(spend(n / last) - spent, nodes, weights, n - 1)
            spent = spend(n / last)
            yield 2 * float(_cdf(-np.tan(np.array(bound)), n - 1))
        edges = np.linspace(0.0, bound, _BINS + 1)
        mass = weights @ -np.diff(_beyond(nodes[:, None], edges, n - 1), axis=1)


def _angle(p: float, n: int) -> float:
    """Of the t that n startups need for this two-sided p."""
    return math.atan(float(t_quantile(1 - p / 2, n - 1)) / math.sqrt(n - 1))


def _cdf(tangent: Floats, freedom: int) -> Floats:
    """Of an angle whose tangent is t / sqrt(freedom)."""
    from scipy.special import stdtr  # a third of a second that most commands need not pay

    return np.asarray(stdtr(freedom, math.sqrt(freedom) * tangent), dtype=np.float64)


def _nodes(edges: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Two points and weights a bin, for a density that is a parabola over neighbouring bins and even about zero."""
    middle, half = (edges[:-1] + edges[1:]) / 2, np.diff(edges) / 2
    tilt = np.gradient(np.concatenate([mass[:1], mass]), edge_order=2)[1:] * _NODE / 2
    return np.concatenate([middle - _NODE * half, middle + _NODE * half]), np.concatenate(
        [mass - tilt, mass + tilt]
    ) / 2


def _beyond(angle: Floats, bound: Floats | float, n: int) -> Floats:
    """P(|a'| > bound) after one more startup than n, from a = angle; a and -a are alike."""
    return _above(angle, bound, n) + _above(-angle, bound, n)


def _above(angle: Floats, bound: Floats | float, n: int) -> Floats:
    """P(a' > bound): sqrt(n) sin a cos b + sin b is a sine of b, shifted, so that b lies in an interval."""
    along = math.sqrt(n) * np.sin(angle)
    shift = np.arctan2(along, 1.0)
    start = np.arcsin(np.clip(math.sqrt(n + 1) * np.sin(bound) / np.hypot(along, 1.0), -1.0, 1.0))
    quarter = math.pi / 2 - 1e-12
    low, high = (np.clip(end - shift, -quarter, quarter) for end in (start, math.pi - start))
    return _cdf(np.tan(high), n) - _cdf(np.tan(low), n)


def _crossed_by(share: float, nodes: Floats, weights: Floats, n: int) -> float:
    """The bound that this share of all paths crosses with the next startup, by bisection."""
    low, high = 0.0, math.pi / 2
    for _ in range(50):
        middle = (low + high) / 2
        crossing = float(weights @ _beyond(nodes, middle, n))
        low, high = (middle, high) if crossing > share else (low, middle)
    return (low + high) / 2


def nominal(looks: Looks | None, n_startups: NDArray[np.int64] | int, alpha: Floats | float) -> Floats:
    """The p that counts now, where all looks together may err with `alpha`: that itself where there is one look."""
    if looks is None:
        return np.asarray(alpha, dtype=np.float64)
    return np.asarray(np.vectorize(looks.level, otypes=[float])(n_startups, alpha))

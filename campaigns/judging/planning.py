"""How many startups and pairs a wanted precision needs, from a campaign that was measured (Kalibera and Jones, 2013).

Two levels: pairs in startups. The variance of a mean over S startups of K pairs is (between + within / K) / S. The
between variance is the variance of startup means less what their pairs explain, within / K, and never below zero (the
estimators of the authors' corrected paper). The t factor depends on S, so S is found by iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from campaigns.judging.statistics import t_quantile

MAX_PAIRS = 30
MAX_STARTUPS = 100


@dataclass(frozen=True)
class Variances:
    within: float  # of a pair's effect in its startup
    between: float  # of startups' true effects
    pairs: float  # K, harmonic mean of the startups' numbers of pairs


@dataclass(frozen=True)
class Proposal:
    startups: int
    pairs: int
    half_width: float  # expected, as a logarithm
    hours: float


def variances(deltas: Mapping[int, Sequence[float]]) -> Variances | None:
    """None where there are fewer than two startups or no startup with two pairs."""
    repeated = [values for values in deltas.values() if len(values) > 1]
    if len(deltas) < 2 or not repeated:
        return None
    within = float(np.mean([np.var(values, ddof=1) for values in repeated]))
    pairs = len(deltas) / sum(1 / len(values) for values in deltas.values())
    means = [float(np.mean(values)) for values in deltas.values()]
    return Variances(within, max(0.0, float(np.var(means, ddof=1)) - within / pairs), pairs)


def optimal_pairs(found: Variances, startup_s: float, pair_s: float) -> int:
    """Where another pair buys as much precision as its share of another startup; even, so that orders balance."""
    if found.between <= 0:
        return MAX_PAIRS
    optimum = math.sqrt(startup_s / pair_s * found.within / found.between)
    return min(MAX_PAIRS, max(2, 2 * round(optimum / 2)))


def half_width(found: Variances, startups: int, pairs: int) -> float:
    return t_quantile(0.975, startups - 1) * math.sqrt((found.between + found.within / pairs) / startups)


def needed_startups(found: Variances, pairs: int, wanted: float) -> int | None:
    """The fewest, from three on, whose expected half width is at most `wanted`; None beyond MAX_STARTUPS."""
    return next((s for s in range(3, MAX_STARTUPS + 1) if half_width(found, s, pairs) <= wanted), None)


def propose(found: Variances, startup_s: float, pair_s: float, wanted: float) -> Proposal | None:
    """The cheapest plan with at most K* pairs. `pair_s`: one pair of each fixture; `startup_s`: what a startup adds."""
    plans = []
    for pairs in range(2, optimal_pairs(found, startup_s, pair_s) + 1, 2):
        startups = needed_startups(found, pairs, wanted)
        if startups is not None:
            hours = startups * (startup_s + pairs * pair_s) / 3600
            plans.append(Proposal(startups, pairs, half_width(found, startups, pairs), hours))
    return min(plans, key=lambda plan: plan.hours, default=None)

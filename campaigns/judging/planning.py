"""How many startups and pairs a wanted precision needs, from a campaign that was measured (Kalibera and Jones, 2013).

Two levels: pairs in startups. A startup says its pairs' median, so the variance of startups' medians is what counts;
for another number of pairs the part that pairs explain is exchanged. The half width of a future campaign is random
twice, by its own spread and by the pilot's: the ratio of both variances is F-distributed, and its 80 % quantile gives
the half width that is met with 80 % assurance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from campaigns.judging.decision import t_quantile

ASSURANCE = 0.8
MAX_PAIRS = 30
MAX_STARTUPS = 100


@dataclass(frozen=True)
class Variances:
    within: float  # of a pair's effect in its startup
    medians: float  # of startups' medians
    pairs: float  # K, harmonic mean of the startups' numbers of pairs
    startups: int

    @property
    def between(self) -> float:
        """Of startups' true effects: what their pairs do not explain, never below zero."""
        return max(0.0, self.medians - self.within * median_share(self.pairs))

    def at(self, pairs: float) -> tuple[float, float]:
        """(variance of a startup's median of `pairs`, its degrees of freedom by Satterthwaite)."""
        if pairs == self.pairs:
            return self.medians, self.startups - 1
        change = self.within * (median_share(pairs) - median_share(self.pairs))
        floor = self.within * median_share(pairs)  # startups differ by no less than their pairs make them
        variance = max(self.medians + change, floor)
        within_freedom = self.startups * (self.pairs - 1)
        spread = self.medians**2 / (self.startups - 1) + change**2 / within_freedom
        return variance, max(1.0, min(variance**2 / spread, self.startups - 1 + within_freedom)) if spread else 1.0


@dataclass(frozen=True)
class Proposal:
    startups: int
    pairs: int
    expected: float  # half width, as a logarithm
    assured: float  # half width that is met with 80 % assurance
    hours: float


def median_share(pairs: float) -> float:
    """Variance of the median of K normal values over that of one; within 2 % of the exact values, odd K as even."""
    return 1.0 if pairs <= 1 else 0.5 if pairs <= 2 else math.pi / (2 * pairs + 2.6)


def variances(deltas: Mapping[int, Sequence[float]]) -> Variances | None:
    """None where there are fewer than two startups or no startup with two pairs."""
    repeated = [values for values in deltas.values() if len(values) > 1]
    if len(deltas) < 2 or not repeated:
        return None
    within = float(np.mean([np.var(values, ddof=1) for values in repeated]))
    pairs = len(deltas) / sum(1 / len(values) for values in deltas.values())
    medians = [float(np.median(values)) for values in deltas.values()]
    return Variances(within, float(np.var(medians, ddof=1)), pairs, len(deltas))


def optimal_pairs(found: Variances, startup_s: float, pair_s: float) -> int:
    """Where another pair buys as much precision as its share of another startup; even, so that orders balance."""
    if found.between <= 0:
        return MAX_PAIRS
    optimum = math.sqrt(startup_s / pair_s * found.within / found.between)
    return min(MAX_PAIRS, max(2, 2 * round(optimum / 2)))


def half_width(found: Variances, startups: int, pairs: float) -> float:
    """Expected, as if the pilot's variance were the truth."""
    return float(t_quantile(0.975, startups - 1)) * math.sqrt(found.at(pairs)[0] / startups)


def assured_half_width(found: Variances, startups: int, pairs: float, assurance: float = ASSURANCE) -> float:
    """What a campaign of so many startups stays below with this assurance."""
    from scipy.special import fdtri  # a third of a second that most commands need not pay

    _, freedom = found.at(pairs)
    return half_width(found, startups, pairs) * math.sqrt(float(fdtri(startups - 1, freedom, assurance)))


def needed_startups(found: Variances, pairs: float, wanted: float) -> int | None:
    """The fewest, from three on, whose assured half width is at most `wanted`; None beyond MAX_STARTUPS."""
    return next((s for s in range(3, MAX_STARTUPS + 1) if assured_half_width(found, s, pairs) <= wanted), None)


def propose(found: Variances, startup_s: float, pair_s: float, wanted: float) -> Proposal | None:
    """The cheapest plan with at most K* pairs. `pair_s`: one pair of each fixture; `startup_s`: what a startup adds."""
    plans = []
    for pairs in range(2, optimal_pairs(found, startup_s, pair_s) + 1, 2):
        startups = needed_startups(found, pairs, wanted)
        if startups is not None:
            hours = startups * (startup_s + pairs * pair_s) / 3600
            expected, assured = half_width(found, startups, pairs), assured_half_width(found, startups, pairs)
            plans.append(Proposal(startups, pairs, expected, assured, hours))
    return min(plans, key=lambda plan: plan.hours, default=None)

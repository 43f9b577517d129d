"""How many startups and pairs a wanted precision needs, from a campaign that was measured (Kalibera and Jones, 2013).

Two levels: pairs in startups. A startup says its pairs' median, so the variance of startups' medians is what counts;
for another number of pairs the part that pairs explain is exchanged. The half width of a future campaign is random
twice, by its own spread and by the pilot's: the ratio of both variances is F-distributed, and its 80 % quantile gives
the half width that is met with 80 % assurance.

How soon a campaign ends that stops when it is decided is drawn: many campaigns of that spread and effect, judged by the
code that judges real ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from campaigns.judging import decision
from campaigns.judging.decision import Bars, Figures, t_quantile
from campaigns.judging.looks import Looks, nominal

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


@dataclass(frozen=True)
class Ending:
    """Of campaigns that stop when they are decided."""

    expected: float  # startups
    share_told: float  # of campaigns that tell faster or slower by their end


def ending(effect: float, sd: float, looks: Looks, margin: float, n: int = 4000, seed: int = 0) -> Ending:
    """`effect` and the `sd` of startups' effects as logarithms; order and earlier startups of the host left out."""
    startups = effect + sd * np.random.default_rng(seed).standard_normal((n, looks.last))
    lengths, told, running = np.full(n, looks.last), np.zeros(n, bool), np.arange(n)
    for length in range(looks.first, looks.last + 1):
        words = _words(startups[running, :length], looks, margin)
        differ = np.isin(words, (decision.FASTER, decision.SLOWER))
        done = differ | (words == decision.EQUIVALENT)
        told[running[differ]] = True
        lengths[running[done]] = length
        running = running[~done]
    return Ending(float(lengths.mean()), float(told.mean()))


def _words(startups: decision.Floats, looks: Looks, margin: float) -> decision.Words:
    """(campaigns, startups) to a word each; the floor is the campaign's own half width."""
    count = startups.shape[1]
    alpha, equivalence = (nominal(looks, count, rate) for rate in (Bars.alpha, Bars.equivalence))
    se = startups.std(1, ddof=1) / math.sqrt(count)
    none = np.full(len(se), np.nan)
    figures = Figures(
        freedom=count - 1,
        effect=np.median(startups, 1),
        mean=startups.mean(1),
        se=se,
        floor=t_quantile(1 - alpha / 2, count - 1) * se,
        contrast=none,
        contrast_se=none,
        contrast_signs=np.zeros(len(se), bool),
    )
    return decision.words(figures, alpha, Bars(equivalence=float(equivalence), margin=margin))


def assured_sd(sd: float, startups: int, assurance: float = ASSURANCE) -> float:
    """What the true sd stays below with this assurance, where `startups` showed `sd`."""
    from scipy.special import chdtri  # a third of a second that most commands need not pay

    return sd * math.sqrt((startups - 1) / float(chdtri(startups - 1, assurance)))


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

"""From figures to words, for one campaign or for thousands at once: pure numpy over leading axes.

`verdicts.py` asks it about the campaign in hand, `campaigns.simulate` about thousands of known truth: a promise is
checked on the code that keeps it. Effects are logarithms, negative is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.int8]
INCONCLUSIVE, FASTER, SLOWER, EQUIVALENT, ORDER_SENSITIVE, BELOW_RESOLUTION = range(6)
NULL_DRAWS = 2000


@dataclass(frozen=True)
class Bars:
    """Two-sided error rates of a decision. A fixture's word has its share of `family`, by Holm over the fixtures."""

    alpha: float = 0.05
    family: float = 0.05
    overruling: float = 0.002  # of the family: what lets one slower fixture make the whole campaign slower
    equivalence: float = 0.10  # two one-sided tests at half of it
    margin: float = 0.005  # as a logarithm


@dataclass(frozen=True)
class Figures:
    """What is judged: a fixture, or the mean over fixtures. Arrays of one shape; `contrast` NaN where there is none."""

    freedom: int  # S - 1
    effect: Floats  # median of the startups' effects: the headline
    mean: Floats
    se: Floats  # standard error of the mean
    floor: Floats
    contrast: Floats  # mean over startups of their order contrasts
    contrast_se: Floats
    contrast_signs: NDArray[np.bool_]  # neighbouring pairs agree on it beyond chance
    resolution: Floats | float = 0.0

    def moved(self, by: Floats) -> Figures:
        return replace(self, effect=self.effect + by, mean=self.mean + by)


def t_quantile(p: Any, freedom: Any) -> Floats:
    """Of Student's distribution."""
    from scipy.special import stdtrit  # a third of a second that most commands need not pay

    return np.asarray(stdtrit(freedom, p), dtype=np.float64)


def t_p(mean: Floats, se: Floats, freedom: int) -> Floats:
    """Two-sided p of a mean; startups that agree to the last digit leave nothing to chance."""
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(se > 0, np.abs(mean) / se, np.where(mean == 0, 0.0, np.inf))
    return np.asarray(2 * stdtr(freedom, -t), dtype=np.float64)


def holm_shares(p: Floats, alpha: float, nominal: Callable[[Floats], Floats] = lambda share: share) -> Floats:
    """The share of `alpha` with which each of the last axis' hypotheses is tested (Holm 1979).

    p <= nominal(share) iff Holm rejects; `nominal` maps error rates to the p that counts at this look. From the first
    that is not rejected on, all have its share. (Ye, Li, Liu and Yao 2013 for Holm under group-sequential tests.)
    """
    n = p.shape[-1]
    order = np.argsort(p, axis=-1, kind="stable")
    shares = _unsorted(np.broadcast_to(alpha / (n - np.arange(n)), p.shape), order)
    kept = np.take_along_axis(p > nominal(shares), order, -1)
    first = np.where(kept.any(-1), kept.argmax(-1), n - 1)[..., None]
    return _unsorted(alpha / (n - np.minimum(np.arange(n), first)), order)


def _unsorted(values: Floats, order: NDArray[np.intp]) -> Floats:
    out = np.empty(order.shape)
    np.put_along_axis(out, order, values, -1)
    return out


def words(figures: Figures, alpha: Floats | float, bars: Bars = Bars()) -> Words:
    """One word each. `alpha` is the two-sided level of faster and slower.

    The order of the arms is a nuisance that ABBA cancels. It decides only where the effect with the control first and
    the one with the candidate first would be told by different words, or where the contrast may be as large as the
    effect; and it never hides a slower candidate.
    """
    told = _plain(figures, alpha, bars)
    half = np.where(np.isnan(figures.contrast), 0.0, figures.contrast / 2)
    reach = t_quantile(0.975, figures.freedom) * figures.contrast_se
    with np.errstate(invalid="ignore"):
        real = (np.abs(figures.contrast) > reach) & figures.contrast_signs
        as_large = (told == FASTER) & (np.abs(figures.contrast) + reach >= np.abs(figures.effect))
    differ = _plain(figures.moved(half), alpha, bars) != _plain(figures.moved(-half), alpha, bars)
    both_equal = _equal(figures.moved(half), bars) & _equal(figures.moved(-half), bars)
    differ = np.where(told == EQUIVALENT, ~both_equal, differ)
    hidden = real & (differ | as_large) & (told != SLOWER)
    return np.where(hidden, ORDER_SENSITIVE, told).astype(np.int8)


def _plain(figures: Figures, alpha: Floats | float, bars: Bars) -> Words:
    size = np.abs(figures.effect)
    beyond = (size > figures.floor) & (figures.effect * figures.mean > 0)
    differs = (t_p(figures.mean, figures.se, figures.freedom) <= alpha) & beyond
    equal = _equal(figures, bars)
    blunt = size < figures.resolution
    chosen = [differs & ~blunt & (figures.effect < 0), differs & ~blunt, differs, equal, blunt]
    codes = [FASTER, SLOWER, BELOW_RESOLUTION, EQUIVALENT, BELOW_RESOLUTION]
    return np.select(chosen, codes, INCONCLUSIVE).astype(np.int8)


def _equal(figures: Figures, bars: Bars) -> NDArray[np.bool_]:
    half = t_quantile(1 - bars.equivalence / 2, figures.freedom) * figures.se
    fine = np.asarray(figures.resolution) < bars.margin
    return np.asarray((np.abs(figures.mean) + half < bars.margin) & fine)


def campaign_words(mean: Words, fixtures: Words, overruling: Words) -> Words:
    """The campaign's own word is its mean's, but no slower fixture (last axis) is averaged away.

    At the family's level it takes any other word from the campaign, at the overruling one it makes the campaign slower.
    """
    taken = np.where((fixtures == SLOWER).any(-1) & (mean != SLOWER), INCONCLUSIVE, mean)
    return np.where((overruling == SLOWER).any(-1), SLOWER, taken).astype(np.int8)


def null_floor(startups: Floats, n_startups: int, seed: int = 0) -> Floats:
    """95th percentile of |headline| of `n_startups` drawn from startups (last axis) that were known to be equal.

    Arms that are equal could as well have changed their names, so every draw has a random sign.
    """
    rng = np.random.default_rng(seed)
    shape = (NULL_DRAWS, n_startups)
    drawn = rng.integers(0, startups.shape[-1], shape)
    signs = rng.choice(np.array([-1.0, 1.0]), shape)
    headlines = np.median(startups[..., drawn] * signs, axis=-1)
    return np.asarray(np.quantile(np.abs(headlines), 0.95, axis=-1), dtype=np.float64)

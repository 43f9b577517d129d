"""Many campaigns judged at once, by the functions that judge one: from pairs over startups to words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from campaigns.judging import decision
from campaigns.judging.decision import Bars, Figures, Floats, Words, t_p, t_quantile
from campaigns.judging.looks import Looks, nominal
from campaigns.judging.past import FEW, bands
from campaigns.simulate.worlds import Model

_CHUNK = 100  # campaigns whose floors are drawn at once


@dataclass(frozen=True)
class Seen:
    """What startups say, for many campaigns: the last axis is the startup."""

    medians: Floats
    contrasts: Floats
    n_positive: NDArray[np.int64]  # neighbouring pairs whose effect is larger with the control first
    n_signs: int


def seen(deltas: Floats, control_first: NDArray[np.bool_]) -> Seen:
    half = deltas.shape[-1] // 2
    order = np.argsort(~control_first, axis=-1, kind="stable")
    sorted_ = np.take_along_axis(deltas, np.broadcast_to(order, deltas.shape), -1)
    first, second = sorted_[..., :half], sorted_[..., half:]
    return Seen(
        np.median(deltas, axis=-1),
        np.median(first, axis=-1) - np.median(second, axis=-1),
        (first > second).sum((-1, -2)),
        half * deltas.shape[-2],
    )


def over_fixtures(each: Seen) -> Seen:
    """The campaign's own startups."""
    return Seen(
        each.medians.mean(1), each.contrasts.mean(1), each.n_positive.sum(1), each.n_signs * each.medians.shape[1]
    )


def figures(of: Seen, floor: Floats | None = None, looks: Looks | None = None) -> Figures:
    """Without a floor from earlier startups it is the campaign's own half width."""
    from scipy.stats import binom

    n = of.medians.shape[-1]
    se = of.medians.std(-1, ddof=1) / math.sqrt(n)
    fewer = np.minimum(of.n_positive, of.n_signs - of.n_positive)
    return Figures(
        freedom=n - 1,
        effect=np.median(of.medians, -1),
        mean=of.medians.mean(-1),
        se=se,
        floor=t_quantile(1 - nominal(looks, n, Bars.alpha) / 2, n - 1) * se if floor is None else floor,
        contrast=of.contrasts.mean(-1),
        contrast_se=of.contrasts.std(-1, ddof=1) / math.sqrt(n),
        contrast_signs=2 * binom.cdf(fewer, of.n_signs, 0.5) <= 0.05,
    )


@dataclass(frozen=True)
class Told:
    campaign: Words
    fixtures: Words  # last axis

    def share(self, *words: int) -> float:
        return float(np.isin(self.campaign, words).mean())

    @property
    def differ(self) -> float:
        return self.share(decision.FASTER, decision.SLOWER)

    @property
    def slower(self) -> float:
        return self.share(decision.SLOWER)

    @property
    def faster(self) -> float:
        return self.share(decision.FASTER)

    @property
    def exit_2(self) -> float:
        slower = (self.campaign == decision.SLOWER) | (self.fixtures == decision.SLOWER).any(-1)
        return float(slower.mean())


def told(model: Model, n: int, seed: int, *, past: int = 0) -> Told:
    """The words of n campaigns; `past` A/A startups of the same host lend each campaign of one fixture its floor."""
    rng = np.random.default_rng(seed)
    floor = _floors(model, rng, n, past) if past else None
    each = seen(model.draw(rng, n), model.control_first)
    return judged(each, floor)


def judged(each: Seen, floor: Floats | None = None, looks: Looks | None = None) -> Told:
    n = each.medians.shape[-1]
    bars = Bars(equivalence=float(nominal(looks, n, Bars.equivalence)))
    own = figures(over_fixtures(each), floor, looks)
    mean = decision.words(own, nominal(looks, n, bars.alpha), bars)
    if each.medians.shape[1] == 1:
        return Told(mean, mean[:, None])
    of = figures(each, looks=looks)
    p = t_p(of.mean, of.se, of.freedom)

    def at(share: Floats) -> Floats:
        return nominal(looks, n, share)

    words, overruling = (
        decision.words(of, at(decision.holm_shares(p, alpha, at)), bars) for alpha in (bars.family, bars.overruling)
    )
    return Told(decision.campaign_words(mean, words, overruling), words)


@dataclass(frozen=True)
class Ended:
    """Campaigns that end when they are decided: what they told at their end, and after how many startups."""

    told: Told
    startups: NDArray[np.int64]
    effects: Floats  # headlines


def ended(model: Model, looks: Looks, n: int, seed: int, *, past: int = 0) -> Ended:
    """`model` has as many startups as the last look."""
    assert model.startups == looks.last, (model, looks)
    rng = np.random.default_rng(seed)
    startups = _past(model, rng, n, past) if past else None
    deltas = model.draw(rng, n)
    running = np.arange(n)
    campaign, fixtures = np.zeros(n, np.int8), np.zeros((n, model.fixtures), np.int8)
    lengths, effects = np.full(n, looks.last), np.zeros(n)
    for length in range(looks.first, looks.last + 1):
        each = seen(deltas[running, :, :length], model.control_first[:length])
        known = None if startups is None else startups[running]
        now = judged(each, None if known is None else _floor(known, length), looks)
        campaign[running], fixtures[running], lengths[running] = now.campaign, now.fixtures, length
        effects[running] = np.median(each.medians.mean(1), -1)
        done = np.isin(now.campaign, (decision.FASTER, decision.SLOWER, decision.EQUIVALENT))
        if known is not None and length < FEW:
            done &= np.array([bands(values.tolist()) is None for values in known])
        running = running[~done]
    return Ended(Told(campaign, fixtures), lengths, effects)


def _floors(model: Model, rng: np.random.Generator, n: int, past: int) -> Floats:
    return _floor(_past(model, rng, n, past), model.startups)


def _past(model: Model, rng: np.random.Generator, n: int, past: int) -> Floats:
    """(n, past): effects of earlier A/A startups of each campaign's host."""
    earlier = replace(model, startups=past, truth=0.0, order=0.0)
    return np.asarray(np.median(earlier.draw(rng, n), axis=-1).mean(1))


def _floor(earlier: Floats, n_startups: int) -> Floats:
    parts = np.array_split(earlier, max(1, len(earlier) // _CHUNK))
    floor = np.concatenate([decision.null_floor(part, n_startups) for part in parts])
    if n_startups < FEW:
        floor = np.maximum(floor, [bands(values.tolist()) or 0.0 for values in earlier])
    return floor

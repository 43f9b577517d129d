"""Does the method keep its promises? Campaigns with a known truth, judged by the code that judges real ones.

    python -m campaigns.simulate [--campaigns N] [--seed N]

prints the tables of docs/statistics.md. The model: a pair's effect is its fixture's truth, plus what the startup does
to the candidate (sd `between`, half of its variance shared by the fixtures), plus pair noise (sd `within`), plus or
minus half the order effect, all relative. Bands are startups that fall into one of two levels.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from campaigns.judging import decision
from campaigns.judging.decision import Bars, Figures, Floats, Words, t_p, t_quantile
from campaigns.judging.past import FEW, bands
from campaigns.judging.planning import needed_startups, variances
from campaigns.judging.statistics import PairEffect, by_startup, nested_bootstrap
from campaigns.plan import Arm, CampaignPlan, Fixture, Order, Role, ServerPlan, blocks

NORMAL, AR1 = "normal", "AR(1)"  # pair noise; lag-one correlation a half
TWO_VALUED, ONE_IN_FIVE = "two-valued", "one in five"  # startup effects in bands
_SHARED = 0.5  # of the variance between startups: common to the fixtures
_CHUNK = 100  # campaigns whose floors are drawn at once
_RESAMPLES = 299  # enough for a coverage; a report takes more


@dataclass(frozen=True)
class Model:
    startups: int
    pairs: int = 6
    between: float = 0.003  # of bands: half their distance
    within: float = 0.005
    truth: float | tuple[float, ...] = 0.0  # of all fixtures, or of each
    fixtures: int = 1
    order: float = 0.0  # how much larger an effect is told with the control first than with the candidate first
    noise: str = NORMAL
    shape: str = NORMAL

    @property
    def control_first(self) -> NDArray[np.bool_]:
        """(startups, pairs): flips from pair to pair and from startup to startup."""
        return np.asarray((np.arange(self.startups)[:, None] + np.arange(self.pairs)) % 2 == 0)

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        """Effects of n campaigns: (n, fixtures, startups, pairs)."""
        shape = (n, self.fixtures, self.startups, self.pairs)
        truth = np.broadcast_to(np.asarray(self.truth), (self.fixtures,))[:, None, None]
        order = np.where(self.control_first, self.order / 2, -self.order / 2)
        return truth + order + self._startups(rng, n)[..., None] + self.within * _noise(rng, shape, self.noise)

    def _startups(self, rng: np.random.Generator, n: int) -> Floats:
        each = (n, self.fixtures, self.startups)
        if self.shape == TWO_VALUED:  # a band is the process's: all fixtures are in it
            return self.between * np.broadcast_to(rng.choice([-1.0, 1.0], (n, 1, self.startups)), each)
        if self.shape == ONE_IN_FIVE:
            hit = rng.random((n, 1, self.startups)) < 0.2
            return 2 * self.between * np.broadcast_to(hit - 0.2, each)
        common = rng.standard_normal((n, 1, self.startups))
        own = rng.standard_normal(each)
        return self.between * (math.sqrt(_SHARED) * common + math.sqrt(1 - _SHARED) * own)

    def campaign(self, rng: np.random.Generator) -> list[PairEffect]:
        """The pairs of one campaign of one fixture, in the order in which they would run."""
        return pair_effects(self.draw(rng, 1)[0, 0], self.control_first)


def pair_effects(deltas: Floats, control_first: NDArray[np.bool_]) -> list[PairEffect]:
    """(startups, pairs) as a report would read them."""
    return [
        PairEffect(s, float(deltas[s, k]), bool(control_first[s, k]))
        for s in range(deltas.shape[0])
        for k in range(deltas.shape[1])
    ]


def _noise(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Floats:
    noise = rng.standard_normal(shape)
    if kind == AR1:
        for k in range(1, shape[-1]):
            noise[..., k] = 0.5 * noise[..., k - 1] + math.sqrt(0.75) * noise[..., k]
    return noise


# -- judging ---------------------------------------------------------------------------------------------------------


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


def figures(of: Seen, floor: Floats | None = None) -> Figures:
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
        floor=t_quantile(0.975, n - 1) * se if floor is None else floor,
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


def judged(each: Seen, floor: Floats | None = None) -> Told:
    bars = Bars()
    own = figures(over_fixtures(each), floor)
    mean = decision.words(own, bars.alpha, bars)
    if each.medians.shape[1] == 1:
        return Told(mean, mean[:, None])
    of = figures(each)
    p = t_p(of.mean, of.se, of.freedom)
    words, overruling = (
        decision.words(of, decision.holm_levels(p, alpha), bars) for alpha in (bars.family, bars.overruling)
    )
    return Told(decision.campaign_words(mean, words, overruling), words)


def _floors(model: Model, rng: np.random.Generator, n: int, past: int) -> Floats:
    earlier = replace(model, startups=past, truth=0.0, order=0.0)
    startups = np.median(earlier.draw(rng, n), axis=-1).mean(1)
    parts = np.array_split(startups, max(1, n // _CHUNK))
    floor = np.concatenate([decision.null_floor(part, model.startups) for part in parts])
    if model.startups < FEW:
        floor = np.maximum(floor, [bands(values.tolist()) or 0.0 for values in startups])
    return floor


# -- other promises --------------------------------------------------------------------------------------------------


def coverage(model: Model, n: int, seed: int) -> tuple[float, float, float]:
    """Share of 95 % intervals that hold a truth of zero: t on startup medians, nested bootstrap, and t on pooled pairs,
    which must not be done. NaN where there is no interval."""
    deltas = model.draw(np.random.default_rng(seed), n)[:, 0]
    boot = math.nan
    if model.startups >= 5:
        samples = ({s: list(row) for s, row in enumerate(campaign)} for campaign in deltas)
        intervals = [nested_bootstrap(sample, 1, _RESAMPLES) for sample in samples]
        boot = float(np.mean([i is not None and i.low <= 0 <= i.high for i in intervals]))
    return _held(np.median(deltas, -1)), boot, _held(deltas.reshape(n, -1))


def _held(values: Floats) -> float:
    count = values.shape[-1]
    half = t_quantile(0.975, count - 1) * values.std(-1, ddof=1) / math.sqrt(count)
    return float((np.abs(values.mean(-1)) <= half).mean())


def predicted_power(model: Model) -> float:
    """Of the two-sided 5 % t test on startup medians, by the noncentral t distribution."""
    from scipy.stats import nct, t

    medians = np.median(replace(model, truth=0.0).draw(np.random.default_rng(0), 3000), -1)
    df, shift = model.startups - 1, abs(float(np.max(model.truth))) * math.sqrt(model.startups) / medians.std()
    limit = t.ppf(0.975, df)
    return float(nct.sf(limit, df, shift) + nct.cdf(-limit, df, shift))


def drift_bias(order: Order | str, pairs: int, drift: float = 0.01) -> float:
    """Headline of one startup whose requests slow down linearly, by `drift` over twelve, nothing else happening."""
    step = drift / 11
    deltas = [step] * pairs if order == "abab" else _deltas_of_plan(Order(order), pairs, step)
    return abs(float(np.median(deltas)))


def _deltas_of_plan(order: Order, pairs: int, step: float) -> list[float]:
    """From the order in which a real plan runs its requests."""
    arm, server = Arm("a"), ServerPlan("null")
    plan = CampaignPlan("drift", arm, arm, (Fixture("f", "{}", (0,)),), server, pairs=pairs, order=order)
    times: dict[tuple[int, Role], float] = {}
    for position, request in enumerate(blocks(plan, 0)[0].steps):
        times[request.key.repeat, request.role] = step * position
    return [times[k, Role.CANDIDATE] - times[k, Role.CONTROL] for k in range(pairs)]


def plan_met(pilot: Model, wanted: float, n: int, seed: int) -> tuple[float, float]:
    """(share of planned campaigns that meet the half width, mean number of startups), planned from pilots."""
    rng = np.random.default_rng(seed)
    met, planned = [], []
    for _ in range(n):
        found = variances(by_startup(pilot.campaign(rng)))
        assert found is not None, pilot
        startups = needed_startups(found, pilot.pairs, wanted)
        if startups is not None:
            medians = np.median(replace(pilot, startups=startups).draw(rng, 1)[0, 0], -1)
            half = float(t_quantile(0.975, startups - 1)) * medians.std(ddof=1) / math.sqrt(startups)
            met.append(half <= wanted)
            planned.append(startups)
    return float(np.mean(met)), float(np.mean(planned))


# -- tables ----------------------------------------------------------------------------------------------------------

_FIXTURES = (1, 2, 4, 8, 16)
_STARTUPS = (3, 5, 8, 16)


def tables(n: int, seed: int) -> Iterator[str]:
    for title, header, rows in _TABLES:
        yield f"### {title}"
        yield _table(header, rows(n, seed))


def _band_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    found = []
    for shape in (ONE_IN_FIVE, TWO_VALUED):
        for startups in (3, 4, 5, 8):
            model = Model(startups, 6, between=0.005, within=0.003, shape=shape)
            shares = [told(model, n, seed, past=past).differ for past in (0, 10, 20)]
            found.append((shape, str(startups), *(_share(share) for share in shares)))
    yield from sorted(found, key=lambda row: float(row[2]), reverse=True)


def _aa_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for noise in (NORMAL, AR1):
        for startups in (3, 4, 5, 8, 16):
            found = [told(Model(startups, fixtures=f, noise=noise), 5 * n, seed + f) for f in _FIXTURES]
            cells = [f"{_share(each.differ)} ({_share(each.exit_2)})" for each in found]
            yield noise, str(startups), *cells


def _power_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for truth in (-0.005, -0.02):
        for startups in _STARTUPS:
            models = [Model(startups, fixtures=f, truth=truth) for f in _FIXTURES]
            yield f"{100 * truth:+g} %", str(startups), *(_share(told(model, n, seed).faster) for model in models)


def _one_slower_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for startups in _STARTUPS:
        found = []
        for fixtures in _FIXTURES[1:]:
            truth = (0.05, *[-0.01] * (fixtures - 1))
            each = told(Model(startups, fixtures=fixtures, truth=truth), n, seed)
            found.append(f"{_share(each.exit_2)} ({_share(each.faster)})")
        yield str(startups), *found


def _order_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for truth in (0.05, -0.01, 0.0):
        for startups in (3, 5, 8):
            models = [Model(startups, truth=truth, order=order) for order in (0.0, 0.005, 0.01, 0.02, 0.04)]
            word = {0.05: decision.SLOWER, -0.01: decision.FASTER, 0.0: decision.ORDER_SENSITIVE}[truth]
            yield (
                f"{100 * truth:+g} %",
                _WORDS[word],
                str(startups),
                *(_share(told(model, n, seed).share(word)) for model in models),
            )


_WORDS = {decision.SLOWER: "slower", decision.FASTER: "faster", decision.ORDER_SENSITIVE: "order-sensitive"}


def _floor_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for truth in (0.005, 0.01):
        for startups in (3, 5, 8, 16, 30):
            aa = Model(startups, between=0.005)
            cells = []
            for past in (0, 10):
                false, found = told(aa, n, seed, past=past), told(replace(aa, truth=truth), n, seed, past=past)
                cells += [_share(false.differ), _share(found.slower)]
            yield f"{100 * truth:+g} %", str(startups), *cells


def _plan_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for startups in (3, 5, 8):
        met, planned = plan_met(Model(startups), 0.005, n, seed)
        yield str(startups), "0.5 %", f"{planned:.1f}", _share(met)


def _coverage_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for shape, between, within in (
        (NORMAL, 0.0, 0.005),
        (NORMAL, 0.003, 0.005),
        (NORMAL, 0.005, 0.003),
        (TWO_VALUED, 0.005, 0.003),
    ):
        for startups in (3, 5, 8):
            found = coverage(Model(startups, 6, between, within, shape=shape), n, seed)
            yield shape, f"{between:.1%}, {within:.1%}", str(startups), *(_share(share) for share in found)


def _predicted_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for startups, between in ((3, 0.003), (5, 0.003), (8, 0.005)):
        model = Model(startups, between=between, within=0.003, truth=0.01)
        yield f"{between:.1%}, 0.3%", str(startups), _share(predicted_power(model)), _share(told(model, n, seed).slower)


def _drift_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for order, pairs in ((Order.BLOCKED, 6), ("abab", 6), (Order.ABBA, 6), (Order.ABBA, 5)):
        yield str(order), str(pairs), f"{100 * drift_bias(order, pairs):.2f} %"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


Rows = Callable[[int, int], Iterator[tuple[str, ...]]]
_BY_F = tuple(f"F = {f}" for f in _FIXTURES)
_TABLES: tuple[tuple[str, tuple[str, ...], Rows], ...] = (
    ("Worst first: startups in bands 1 % apart, truth zero, told to differ (%)",
     ("band", "S", "no earlier startups", "10 A/A startups", "20 A/A startups"), _band_rows),
    ("A/A campaigns told to differ, in brackets with exit code 2 (%, of five times as many)",
     ("pair noise", "S", *_BY_F), _aa_rows),
    ("All fixtures faster by the same, told faster (%)", ("truth", "S", *_BY_F), _power_rows),
    ("One fixture +5 %, the others -1 %: exit code 2, in brackets told faster (%)",
     ("S", *_BY_F[1:]), _one_slower_rows),
    ("Order effects (%)", ("truth", "told", "S", *(f"order {o} %" for o in (0, 0.5, 1, 2, 4))), _order_rows),
    ("Ten A/A startups, between 0.5 % (%)",
     ("truth", "S", "false, none", "found, none", "false, ten", "found, ten"), _floor_rows),
    ("Plans from a pilot: half width met (%)", ("startups of the pilot", "wanted", "planned S", "met"), _plan_rows),
    ("Coverage of nominal 95 % intervals, truth zero (%)",
     ("startup effects", "between, within", "S", "t", "bootstrap", "pooled pairs"), _coverage_rows),
    ("An effect of 1 %: power as predicted, and told (%)",
     ("between, within", "S", "predicted", "told slower"), _predicted_rows),
    ("A linear drift of 1 % over twelve requests", ("order", "K", "bias of the headline"), _drift_rows),
)  # fmt: skip


def _table(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m campaigns.simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--campaigns", type=int, default=2000, help="per row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for part in tables(options.campaigns, options.seed):
        print(part, flush=True)


if __name__ == "__main__":
    main()

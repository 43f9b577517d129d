"""Does the method keep its promises? Campaigns with a known truth, judged as real ones are.

    python -m campaigns.simulate [--campaigns N] [--seed N]

prints the tables of docs/statistics.md. The model: a pair's effect is the truth, plus what its startup does to the
candidate (sd `between`), plus pair noise (sd `within`), all relative. Two-valued startup effects stand for placement
bands, which no interval from few startups covers.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from campaigns.judging.statistics import Interval, PairEffect, by_startup, nested_bootstrap, startup_medians, t_interval
from campaigns.judging.verdicts import Context, Verdict, judge
from campaigns.plan import Arm, CampaignPlan, Fixture, Order, Role, ServerPlan, blocks

NORMAL, TWO_VALUED = "normal", "two-valued"
_RESAMPLES = 999  # enough for a coverage; a report takes more


@dataclass(frozen=True)
class Model:
    startups: int
    pairs: int
    between: float = 0.003
    within: float = 0.005
    truth: float = 0.0
    shape: str = NORMAL

    def startup_effects(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        if self.shape == NORMAL:
            return self.between * rng.standard_normal(n)
        return self.between * rng.choice([-1.0, 1.0], n)

    def campaign(self, rng: np.random.Generator) -> list[PairEffect]:
        """The pairs of one campaign in the order in which they would run."""
        effects = self.startup_effects(rng, self.startups)
        noise = self.within * rng.standard_normal((self.startups, self.pairs))
        return [
            PairEffect(s, float(self.truth + effects[s] + noise[s, k]), (s + k) % 2 == 0)
            for s in range(self.startups)
            for k in range(self.pairs)
        ]

    def aa_medians(self, rng: np.random.Generator, n: int) -> tuple[float, ...]:
        """Startup medians of an A/A campaign of the same host."""
        model = Model(n, self.pairs, self.between, self.within, 0.0, self.shape)
        return tuple(startup_medians(by_startup(model.campaign(rng))).values())


def coverage(
    model: Model, n: int, seed: int, make: Callable[[list[PairEffect]], Interval | None]
) -> tuple[float, float]:
    """(share of intervals that hold the truth, their mean width); a missing interval holds nothing."""
    rng = np.random.default_rng(seed)
    found = [make(model.campaign(rng)) for _ in range(n)]
    held = sum(i is not None and i.low <= model.truth <= i.high for i in found)
    widths = [2 * i.half_width for i in found if i is not None]
    return held / n, float(np.mean(widths)) if widths else math.nan


def by_t(pairs: list[PairEffect]) -> Interval | None:
    return t_interval(list(startup_medians(by_startup(pairs)).values()))


def by_bootstrap(pairs: list[PairEffect]) -> Interval | None:
    return nested_bootstrap(by_startup(pairs), seed=1, resamples=_RESAMPLES)


def by_pooling(pairs: list[PairEffect]) -> Interval | None:
    """What must not be done: every pair as if it were independent."""
    return t_interval([pair.delta_log for pair in pairs])


def verdicts(model: Model, n: int, seed: int, *, aa_startups: int = 0) -> Counter[Verdict]:
    """The words that n campaigns end with; the noise floor comes from an A/A campaign where it has startups."""
    rng = np.random.default_rng(seed)
    counts: Counter[Verdict] = Counter()
    for _ in range(n):
        floor = model.aa_medians(rng, aa_startups)
        pairs = model.campaign(rng)
        counts[judge(pairs, len(pairs), Context(aa_medians=floor, resamples=0)).verdict] += 1
    return counts


def wrong(counts: Counter[Verdict]) -> float:
    """Share of A/A campaigns that were told to differ."""
    return (counts[Verdict.FASTER] + counts[Verdict.SLOWER]) / counts.total()


def found(counts: Counter[Verdict]) -> float:
    return counts[Verdict.SLOWER] / counts.total()


def power(model: Model, n: int, seed: int) -> float:
    """Share of campaigns whose t interval excludes zero on the side of the truth."""
    rng = np.random.default_rng(seed)
    intervals = [by_t(model.campaign(rng)) for _ in range(n)]
    return sum(i is not None and i.excludes_zero() and i.low * model.truth > 0 for i in intervals) / n


def predicted_power(model: Model, seed: int = 0) -> float:
    """Of the two-sided 5 % t test on startup medians, by the noncentral t distribution."""
    from scipy.stats import nct, t

    rng = np.random.default_rng(seed)
    many = Model(6_000, model.pairs, model.between, model.within, 0.0, model.shape)
    sd = float(np.std(list(startup_medians(by_startup(many.campaign(rng))).values())))
    df, shift = model.startups - 1, abs(model.truth) * math.sqrt(model.startups) / sd
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


def tables(n: int, seed: int) -> Iterator[str]:
    yield "### Coverage of nominal 95 % intervals, truth zero (width in percent)"
    yield _table(
        ("startup effects", "between, within", "S", "K", "t", "bootstrap", "pooled pairs"), _coverage_rows(n, seed)
    )
    yield f"### A/A campaigns told to differ, of {n}"
    yield _table(
        ("startup effects", "S", "K", "no A/A", "floor from 10 A/A startups", "order-sensitive"), _aa_rows(n, seed)
    )
    yield f"### An injected effect of 1 %, of {n}"
    yield _table(
        ("between, within", "S", "K", "interval excludes zero", "predicted", "told slower"), _power_rows(n, seed)
    )
    yield "### A linear drift of 1 % over twelve requests"
    yield _table(("order", "K", "bias of the headline"), _drift_rows())


def _coverage_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for shape in (NORMAL, TWO_VALUED):
        for between, within in ((0.0, 0.005), (0.003, 0.005), (0.005, 0.003)):
            if shape == TWO_VALUED and not between:
                continue
            for startups in (3, 5, 8):
                model = Model(startups, 6, between, within, shape=shape)
                cells = [_held(*coverage(model, n, seed, make)) for make in (by_t, by_bootstrap, by_pooling)]
                yield shape, f"{between:.1%}, {within:.1%}", str(startups), "6", *cells


def _held(share: float, width: float) -> str:
    return "–" if math.isnan(width) else f"{share:.3f} ({100 * width:.2f})"


def _aa_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for shape in (NORMAL, TWO_VALUED):
        for startups in (3, 5, 8):
            model = Model(startups, 6, shape=shape)
            alone, floored = verdicts(model, n, seed), verdicts(model, n, seed, aa_startups=10)
            order = alone[Verdict.ORDER_SENSITIVE] / alone.total()
            yield shape, str(startups), "6", f"{wrong(alone):.3f}", f"{wrong(floored):.3f}", f"{order:.3f}"


def _power_rows(n: int, seed: int) -> Iterator[tuple[str, ...]]:
    for between, within, startups in ((0.003, 0.003, 3), (0.003, 0.003, 5), (0.003, 0.003, 8), (0.005, 0.005, 8)):
        model = Model(startups, 6, between, within, truth=math.log(1.01))
        told, seen = found(verdicts(model, n, seed)), power(model, n, seed)
        cells = (f"{share:.3f}" for share in (seen, predicted_power(model), told))
        yield f"{between:.1%}, {within:.1%}", str(startups), "6", *cells


def _drift_rows() -> Iterator[tuple[str, ...]]:
    for order, pairs in ((Order.BLOCKED, 6), ("abab", 6), (Order.ABBA, 6), (Order.ABBA, 5)):
        yield str(order), str(pairs), f"{100 * drift_bias(order, pairs):.2f} %"


def _table(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m campaigns.simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--campaigns", type=int, default=1000, help="per row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for part in tables(options.campaigns, options.seed):
        print(part, flush=True)


if __name__ == "__main__":
    main()

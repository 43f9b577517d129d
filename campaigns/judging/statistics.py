"""What may be said about a difference: effects per startup, intervals, tests, floors. The unit is a startup.

All effects are logarithms, ln(candidate/control); negative is faster. A pair is a repeated measure inside its startup,
so more pairs never stand in for startups. scipy has every method but the nested bootstrap, which is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from campaigns.judging.decision import t_quantile

RESAMPLES = 9999
_CHUNK = 2_000_000  # values drawn at once by the bootstrap
MIN_STARTUPS_INTERVAL = 3
MIN_STARTUPS_BOOTSTRAP = 5
MIN_STARTUPS_TEST = 6
MAX_STARTUPS_EXACT = 13  # 2^13 sign flips fit into the resamples; beyond, they are drawn
REACHABLE = 6  # signs that a two-sided sign test needs to come below 5 %


@dataclass(frozen=True)
class PairEffect:
    """One admissible pair: its startup, its place in the order of its group, and by how much the arms differ."""

    startup: int
    delta_log: float
    control_first: bool


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    level: float
    method: str

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def inside(self, margin: float) -> bool:
        return -margin < self.low and self.high < margin


@dataclass(frozen=True)
class OrderContrast:
    """Median effect when the control went first minus when the candidate did, and the sign test over neighbours."""

    startups: Mapping[int, float]  # within startups, so that startup effects cannot pass for order
    n_control_first: int
    n_candidate_first: int
    n_signs: int
    n_positive: int

    @property
    def agreeing(self) -> int:
        """Signs on the majority's side."""
        return max(self.n_positive, self.n_signs - self.n_positive)

    @property
    def value(self) -> float | None:
        """Median over startups."""
        return median_or_none(list(self.startups.values()))

    @property
    def interval(self) -> Interval | None:
        return t_interval(list(self.startups.values()))

    @property
    def p(self) -> float | None:
        return sign_test_p(self.agreeing, self.n_signs)

    @property
    def beyond_chance(self) -> bool:
        """Neighbouring pairs agree; where too few can be tested, all must."""
        if self.n_signs < REACHABLE:
            return self.agreeing == self.n_signs and self.n_signs > 1
        return self.p is not None and self.p <= 0.05

    @property
    def imbalance(self) -> int:
        return self.n_control_first - self.n_candidate_first


@dataclass(frozen=True)
class NoiseFloor:
    value: float
    source: str


def by_startup(pairs: Sequence[PairEffect]) -> dict[int, list[float]]:
    deltas: dict[int, list[float]] = {}
    for pair in pairs:
        deltas.setdefault(pair.startup, []).append(pair.delta_log)
    return dict(sorted(deltas.items()))


def startup_medians(deltas: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """m_s: what each startup says."""
    return {startup: float(np.median(values)) for startup, values in deltas.items()}


def t_interval(medians: Sequence[float], level: float = 0.95) -> Interval | None:
    """Around the mean of the startup medians; None below three startups."""
    n = len(medians)
    if n < MIN_STARTUPS_INTERVAL:
        return None
    half = float(t_quantile(0.5 + level / 2, n - 1)) * float(np.std(medians, ddof=1)) / math.sqrt(n)
    centre = float(np.mean(medians))
    return Interval(centre - half, centre + half, level, "t on startup medians")


def nested_bootstrap(deltas: Mapping[int, Sequence[float]], seed: int, resamples: int = RESAMPLES) -> Interval | None:
    """Startups with replacement, then pairs within each drawn one; median of medians. None below five startups."""
    if len(deltas) < MIN_STARTUPS_BOOTSTRAP:
        return None
    statistics = bootstrap_statistics(deltas, seed, resamples)
    if np.isnan(statistics).any():
        return None
    low, high = np.quantile(statistics, [0.025, 0.975])
    return Interval(float(low), float(high), 0.95, "hierarchical bootstrap")


def bootstrap_statistics(deltas: Mapping[int, Sequence[float]], seed: int, resamples: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    sizes = np.array([len(values) for values in deltas.values()])
    table = np.full((len(sizes), sizes.max()), np.nan)
    for row, values in zip(table, deltas.values(), strict=True):
        row[: len(values)] = values
    step = max(1, _CHUNK // table.size)
    parts = [_resample(rng, table, sizes, min(step, resamples - at)) for at in range(0, resamples, step)]
    return np.concatenate(parts)


def _resample(
    rng: np.random.Generator, table: NDArray[np.float64], sizes: NDArray[np.int64], count: int
) -> NDArray[np.float64]:
    drawn = rng.integers(0, len(sizes), (count, len(sizes)))
    columns = np.floor(rng.random((count, *table.shape)) * sizes[drawn][:, :, None]).astype(np.int64)
    values = table[drawn[:, :, None], columns]
    if (sizes == sizes[0]).all():
        return np.asarray(np.median(np.median(values, axis=2), axis=1))
    values[np.arange(table.shape[1]) >= sizes[drawn][:, :, None]] = np.nan
    return np.asarray(np.median(np.nanmedian(values, axis=2), axis=1))


def sign_flip_p(medians: Sequence[float], seed: int = 0) -> float | None:
    """Sign-flip test of the mean, two-sided; None below six startups, where p stays high.

    Exact up to MAX_STARTUPS_EXACT, Monte Carlo with RESAMPLES flips beyond.
    """
    if len(medians) < MIN_STARTUPS_TEST:
        return None
    from scipy.stats import permutation_test  # a second that most reports need not pay

    found = permutation_test(
        (np.asarray(medians),),
        lambda sample, axis: np.mean(sample, axis=axis),
        permutation_type="samples",
        n_resamples=RESAMPLES,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def sign_test_p(positive: int, n: int) -> float | None:
    """Two-sided exact binomial at one half."""
    fewer = min(positive, n - positive)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / (1 << n)) if n else None


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p values that keep the family-wise error (Holm 1979)."""
    adjusted: dict[str, float] = {}
    running, left = 0.0, len(p_values)
    for name, p in sorted(p_values.items(), key=lambda item: item[1]):
        running = max(running, min(1.0, left * p))
        adjusted[name] = running
        left -= 1
    return adjusted


def order_contrast(pairs: Sequence[PairEffect]) -> OrderContrast:
    contrasts, signs = {}, []
    for startup in dict.fromkeys(pair.startup for pair in pairs):
        of_startup = [pair for pair in pairs if pair.startup == startup]
        first = [pair.delta_log for pair in of_startup if pair.control_first]
        second = [pair.delta_log for pair in of_startup if not pair.control_first]
        if first and second:
            contrasts[startup] = float(np.median(first) - np.median(second))
            signs += [a - b for a, b in zip(first, second, strict=False) if a != b]
    n_control_first = sum(pair.control_first for pair in pairs)
    return OrderContrast(
        startups=contrasts,
        n_control_first=n_control_first,
        n_candidate_first=len(pairs) - n_control_first,
        n_signs=len(signs),
        n_positive=sum(sign > 0 for sign in signs),
    )


def mean_contrast(contrasts: Sequence[OrderContrast]) -> OrderContrast:
    """Over fixtures, in the startups that all of them have; their neighbours are counted together."""
    shared = sorted(set.intersection(*(set(each.startups) for each in contrasts)))
    return OrderContrast(
        startups={s: math.fsum(each.startups[s] for each in contrasts) / len(contrasts) for s in shared},
        n_control_first=sum(each.n_control_first for each in contrasts),
        n_candidate_first=sum(each.n_candidate_first for each in contrasts),
        n_signs=sum(each.n_signs for each in contrasts),
        n_positive=sum(each.n_positive for each in contrasts),
    )


def settle_drift(levels: Sequence[float]) -> float | None:
    """ln of the median of the second half over that of the first; `levels` of one startup in the order of running."""
    half = len(levels) // 2
    if not half:
        return None
    return math.log(float(np.median(levels[-half:])) / float(np.median(levels[:half])))


def mismatch_bound(n: int) -> float | None:
    """The mismatch rate that n pairs without a mismatch still allow, with 95 % confidence."""
    return float(1 - 0.05 ** (1 / n)) if n else None


def percent(effect: float) -> float:
    return float(100 * math.expm1(effect))


def median_or_none(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if len(values) else None


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Indices to flag, never to drop: robust z above 10, or beyond three interquartile ranges."""
    if len(values) < 4:
        return ()
    x = np.asarray(values, dtype=float)
    mad = 1.4826 * float(np.median(np.abs(x - np.median(x))))
    low, high = np.quantile(x, [0.25, 0.75])
    reach = 3 * (high - low)
    far = (x < low - reach) | (x > high + reach)
    if mad > 0:
        far |= np.abs(x - np.median(x)) / mad > 10
    return tuple(int(i) for i in np.flatnonzero(far))

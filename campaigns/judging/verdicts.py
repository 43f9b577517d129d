"""The words of a report, and the numbers that decided them. `not significant` is never told as `no change`.

Evidence follows from the number of startups. `faster` and `slower` need an interval that excludes zero and an effect
beyond the noise floor; `equivalent` needs the 90 % interval inside the margin (two one-sided tests); an effect that the
client could not have seen is `below-resolution`; everything else is `inconclusive`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from campaigns.judging.statistics import (
    RESAMPLES,
    Interval,
    NoiseFloor,
    OrderContrast,
    PairEffect,
    by_startup,
    median_or_none,
    nested_bootstrap,
    noise_floor,
    order_contrast,
    percent,
    sign_flip_p,
    startup_medians,
    t_interval,
)

MARGIN = 0.005  # relative; half a percent


class Evidence(StrEnum):
    SCREEN = "screen"
    INDICATIVE = "indicative"
    SUPPORTED = "supported"


class Verdict(StrEnum):
    SCREEN = "screen"
    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    ORDER_SENSITIVE = "order-sensitive"
    BELOW_RESOLUTION = "below-resolution"
    INADMISSIBLE = "inadmissible"
    NOTHING_MEASURED = "nothing-measured"


@dataclass(frozen=True)
class Context:
    """What a judgement needs beside the pairs."""

    seed: int = 0
    resolution: float | None = None  # of the client, relative to the control's level
    aa_medians: tuple[float, ...] = ()  # startup medians of comparable A/A campaigns
    floor: NoiseFloor | None = None  # known already: taken as it is
    margin: float = MARGIN
    resamples: int = RESAMPLES  # of the bootstrap; 0 leaves it out


@dataclass(frozen=True)
class Judgement:
    evidence: Evidence
    verdict: Verdict
    because: str
    n_pairs: int
    startup_medians: dict[int, float]
    startup_pairs: dict[int, int]
    effect: float | None = None
    interval: Interval | None = None
    interval_90: Interval | None = None
    bootstrap: Interval | None = None
    p: float | None = None
    floor: NoiseFloor | None = None
    contrast: OrderContrast | None = None
    pair_range: tuple[float, float] | None = None

    @property
    def n_startups(self) -> int:
        return len(self.startup_medians)


def evidence(n_startups: int) -> Evidence:
    if n_startups < 3:
        return Evidence.SCREEN
    return Evidence.INDICATIVE if n_startups < 5 else Evidence.SUPPORTED


def judge(pairs: Sequence[PairEffect], n_recorded: int, context: Context = Context()) -> Judgement:
    """`pairs` are the admissible ones in the order of running; `n_recorded` counts the others too."""
    deltas = by_startup(pairs)
    medians = startup_medians(deltas)
    values = list(medians.values())
    interval = t_interval(values)
    measured = Judgement(
        evidence=evidence(len(medians)),
        verdict=Verdict.SCREEN,
        because="",
        n_pairs=len(pairs),
        startup_medians=medians,
        startup_pairs={startup: len(values) for startup, values in deltas.items()},
        effect=median_or_none(values),
        interval=interval,
        interval_90=t_interval(values, 0.90),
        bootstrap=nested_bootstrap(deltas, context.seed, context.resamples) if context.resamples else None,
        p=sign_flip_p(values, context.seed),
        floor=context.floor or noise_floor(context.aa_medians, interval, context.resolution),
        contrast=order_contrast(pairs),
        pair_range=(min(p.delta_log for p in pairs), max(p.delta_log for p in pairs)) if pairs else None,
    )
    verdict, because = _decide(measured, n_recorded, context)
    return replace(measured, verdict=verdict, because=because)


def _decide(measured: Judgement, n_recorded: int, context: Context) -> tuple[Verdict, str]:
    if not measured.n_pairs:
        if n_recorded:
            return Verdict.INADMISSIBLE, f"none of {n_recorded} pairs is admissible"
        return Verdict.NOTHING_MEASURED, "no pair was recorded"
    if measured.n_startups < 3:
        return Verdict.SCREEN, f"{counted(measured.n_startups, 'startup')}: three are needed for an interval"
    assert measured.effect is not None and measured.interval is not None and measured.floor is not None, measured
    contrast = measured.contrast
    if contrast is not None and contrast.value is not None and contrast.exceeds(measured.floor.value):
        return Verdict.ORDER_SENSITIVE, (
            f"order contrast {show(contrast.value)} beyond the noise floor {show(measured.floor.value, sign=False)}, "
            f"{contrast.agreeing} of {contrast.n_signs} neighbours agree"
        )
    return _decide_effect(measured.effect, measured.interval, measured.floor, measured.interval_90, context)


def _decide_effect(
    effect: float, interval: Interval, floor: NoiseFloor, interval_90: Interval | None, context: Context
) -> tuple[Verdict, str]:
    numbers = f"effect {show(effect)}, interval {show_interval(interval)}, noise floor {show(floor.value, sign=False)}"
    resolution = context.resolution or 0.0
    if interval.excludes_zero() and abs(effect) > floor.value and effect * interval.low > 0:
        if abs(effect) < resolution:
            return Verdict.BELOW_RESOLUTION, f"{numbers}, below the resolution {show(resolution, sign=False)}"
        return (Verdict.FASTER if effect < 0 else Verdict.SLOWER), numbers
    margin = math.log1p(context.margin)
    if interval_90 is not None and interval_90.inside(margin) and resolution < margin:
        return Verdict.EQUIVALENT, (
            f"90 % interval {show_interval(interval_90)} inside the margin of {show(margin, sign=False)}"
        )
    if abs(effect) < resolution:
        return Verdict.BELOW_RESOLUTION, f"{numbers}, below the resolution {show(resolution, sign=False)}"
    return Verdict.INCONCLUSIVE, numbers


def show(effect: float, *, sign: bool = True) -> str:
    """A logarithm as percent."""
    return f"{percent(effect):+.3f} %" if sign else f"{percent(abs(effect)):.3f} %"


def show_interval(interval: Interval) -> str:
    return f"{percent(interval.low):+.3f} … {percent(interval.high):+.3f} %"


def counted(n: int, noun: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"

"""The words of a report, what decided them, and how both are printed. `not significant` is never told as no change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from campaigns.judging.looks import Looks
from campaigns.judging.past import FEW, NO_PAST, Past
from campaigns.judging.statistics import RESAMPLES, Interval, NoiseFloor, OrderContrast, PairEffect, percent

MARGIN = 0.005  # relative; half a percent


class Evidence(StrEnum):
    SCREEN = "screen"
    INDICATIVE = "indicative"
    SUPPORTED = "supported"
    PARTIAL = "partial"  # a fixture of the plan is missing from the campaign's mean


class Verdict(StrEnum):
    SCREEN = "screen"
    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    ORDER_SENSITIVE = "order-sensitive"
    REPEAT_SENSITIVE = "repeat-sensitive"
    BELOW_RESOLUTION = "below-resolution"
    INADMISSIBLE = "inadmissible"
    NOTHING_MEASURED = "nothing-measured"


@dataclass(frozen=True)
class Sample:
    """The pairs of one fixture: the admissible ones in the order of running, and how many were recorded."""

    pairs: Sequence[PairEffect]
    n_recorded: int
    resolution: float | None = None  # of the client, relative to the control's level
    past: Past = NO_PAST
    levels: Mapping[int, float] = field(default_factory=dict)  # ln of the control's level, by startup
    settle: Mapping[int, float] = field(default_factory=dict)  # ln drift of the control in each startup
    repeats: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # by server: see judging.repeats


@dataclass(frozen=True)
class Setting:
    """What all fixtures of a campaign share."""

    seed: int = 0
    past: Past = NO_PAST  # of the mean over the fixtures
    margin: float = MARGIN
    resamples: int = RESAMPLES  # of the bootstrap; 0 leaves it out
    overloaded: str = ""  # why the host cannot support a verdict
    looks: Looks | None = None  # None: the campaign is judged once, at its end


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
    p: float | None = None  # sign flip
    floor: NoiseFloor | None = None
    contrast: OrderContrast | None = None
    pair_range: tuple[float, float] | None = None
    adjusted: Interval | None = None  # at the level that Holm leaves this fixture; decides its word
    bands: float | None = None  # distance of the bands that startups are known to fall into
    notes: tuple[str, ...] = ()  # what did not decide and should be known
    look: int = 0  # which of the campaign's looks this is, from 1; 0 where it is judged once

    @property
    def n_startups(self) -> int:
        return len(self.startup_medians)

    @property
    def banded(self) -> bool:
        """Too few startups where bands are known: no word of its own may be told of an effect."""
        return self.bands is not None and self.n_startups < FEW

    @property
    def decided(self) -> bool:
        """Whether more startups are asked for nothing."""
        return self.verdict in (Verdict.FASTER, Verdict.SLOWER, Verdict.EQUIVALENT) and not self.banded


@dataclass(frozen=True)
class Judged:
    """A campaign: its fixtures by name, and itself."""

    fixtures: Mapping[str, Judgement]
    campaign: Judgement


def evidence(n_startups: int) -> Evidence:
    if n_startups < 3:
        return Evidence.SCREEN
    return Evidence.INDICATIVE if n_startups < 5 else Evidence.SUPPORTED


def show(effect: float, *, sign: bool = True) -> str:
    """A logarithm as percent."""
    return f"{percent(effect):+.3f} %" if sign else f"{percent(abs(effect)):.3f} %"


def show_interval(interval: Interval) -> str:
    return show_range(interval.low, interval.high)


def show_range(low: float, high: float) -> str:
    return f"{percent(low):+.3f} … {percent(high):+.3f} %"


def counted(n: int, noun: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"

"""How figures are printed: published digits, units in the row's name, a dash for what is unknown. Knows no layout."""

from __future__ import annotations

import math
from collections.abc import Sequence

from campaigns.judging.quantiles import Confidence, Quantile
from campaigns.judging.statistics import Interval, percent
from campaigns.judging.verdicts import Judgement, Verdict, show_range
from campaigns.scope import Scope

DASH = "–"
_SCOPE_WORDS = {
    Scope.REQUEST_AVERAGE_ENGINE: "request average, engine clock",
    Scope.REQUEST_AVERAGE_CLIENT: "request average, client clock",
    Scope.ROUND_ENGINE: "single rounds, engine-step",
    Scope.ROUND_CLIENT: "single rounds, sse-chunk",
    Scope.PROFILED: "profiled",
}


def scope_words(scope: Scope) -> str:
    return _SCOPE_WORDS[scope]


def number(value: float | None, digits: int) -> str:
    return DASH if value is None else f"{value:.{digits}f}"


def both(control: float | None, candidate: float | None, digits: int) -> str:
    return f"{number(control, digits)} / {number(candidate, digits)}"


def effect(value: float | None) -> str:
    """A logarithm as percent; negative is faster."""
    return DASH if value is None else f"{percent(value):+.2f} %"


def share(value: float | None, digits: int = 2) -> str:
    return DASH if value is None else f"{100 * value:.{digits}f} %"


def interval(judgement: Judgement) -> str:
    if judgement.interval is None:
        low, high = judgement.pair_range or (None, None)
        return f"none; pairs {effect(low)} … {effect(high)}" if low is not None else DASH
    return f"{bounds(judgement.interval)} ({judgement.interval.method})"


def adjusted(judgement: Judgement) -> str:
    """The interval at the level that the number of fixtures leaves; it decides the fixture's word."""
    found = judgement.adjusted
    return DASH if found is None else f"{bounds(found)} (at {100 * found.level:.4g} %)"


def bounds(interval: Interval | None) -> str:
    """Both ends in percent, with one digit more than the width of the interval gives a meaning to."""
    if interval is None:
        return DASH
    places = min(3, digits(interval) + 1)
    return f"{percent(interval.low):+.{places}f} … {percent(interval.high):+.{places}f} %"


def digits(interval: Interval | None) -> int:
    """Decimals of a percentage that the interval's width still gives a meaning to; none where there is no interval."""
    if interval is None:
        return 0
    width = percent(interval.high) - percent(interval.low)
    return 3 if width <= 0 else max(0, min(3, -math.floor(math.log10(width))))


def places(resolution_ms: float | None) -> int:
    """Decimals of a level in ms: as many as the client could resolve, and the published six where nobody knows."""
    return 6 if not resolution_ms else max(0, min(6, math.ceil(-math.log10(resolution_ms))))


def floor(judgement: Judgement) -> str:
    if judgement.floor is None:
        return DASH
    return f"{show_range(-judgement.floor.value, judgement.floor.value)} ({judgement.floor.source})"


def quantiles(found: Sequence[Quantile], *, refused_too: bool = False) -> str:
    """p50 / p90 / p99; a refused one is a dash, or its value with n where it was asked for."""
    return " / ".join(_quantile(q, refused_too) for q in found)


def _quantile(found: Quantile, refused_too: bool) -> str:
    if found.confidence is Confidence.REFUSED:
        return f"{number(found.value, 3)} (refused, n={found.n})" if refused_too else DASH
    low = "*" if found.confidence is Confidence.LOW else ""
    return f"{number(found.value, 3)}{low}"


def verdict(judgement: Judgement) -> str:
    """The sign tells the direction without colour: + faster, - slower, ~ undecided, = equivalent, ! not usable.

    Where bands are known, fewer than five startups are not told to be faster.
    """
    if judgement.banded and judgement.verdict is Verdict.FASTER:
        return "~ indicative (faster)"
    signs = {"faster": "+", "slower": "-", "equivalent": "=", "inconclusive": "~", "below-resolution": "~"}
    sign = signs.get(judgement.verdict.value, "~" if judgement.verdict.value == "screen" else "!")
    return f"{sign} {judgement.verdict.value}"

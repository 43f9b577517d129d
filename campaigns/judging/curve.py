"""The gate over context lengths: every long one strictly faster, the shortest not slower, no growth larger.

Growth is a difference of differences, in which the noise of four levels adds up: what the arms' levels did in each
startup says how much of it is noise. A gate fails for what is shown against it and passes for what is shown for it;
what startups leave open is neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from campaigns.judging.statistics import Interval, t_interval
from campaigns.judging.verdicts import MARGIN, Verdict

_LEVEL = 0.95  # of all steps of a curve together (Bonferroni)


@dataclass(frozen=True)
class Curve:
    """Levels of one context length, in ms."""

    length: int
    control_ms: float
    candidate_ms: float
    verdict: Verdict | None = None  # of its paired effect; None: the levels alone are known
    startups: Mapping[int, tuple[float, float]] = field(default_factory=dict)  # levels of both arms, by startup


@dataclass(frozen=True)
class Examined:
    """What is shown against a curve, and what nobody can tell yet."""

    faults: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def examined(curve: Sequence[Curve]) -> Examined:
    """Growth ratios are for reference only and decide nothing."""
    points = sorted(curve, key=lambda point: point.length)
    found = [*_lengths(points), *_steps(points)]
    faults, doubts = (tuple(told for shown, told in found if shown is which) for which in (True, False))
    return Examined(faults, doubts)


def _lengths(points: Sequence[Curve]) -> Iterator[tuple[bool, str]]:
    """(whether it is shown, what stands against a length)."""
    for i, point in enumerate(points):
        levels = f"{point.candidate_ms:.3f} ms, the control {point.control_ms:.3f} ms"
        if point.verdict is not None:
            if point.verdict is Verdict.SLOWER:
                yield True, f"{point.length}: slower: {levels}"
            elif i and point.verdict is not Verdict.FASTER:
                yield False, f"{point.length}: {point.verdict.value}, not shown to be faster: {levels}"
        elif point.candidate_ms >= point.control_ms if i else point.candidate_ms > point.control_ms:
            yield True, f"{point.length}: {'not faster' if i else 'slower'}: {levels}"


def _steps(points: Sequence[Curve]) -> Iterator[tuple[bool, str]]:
    """The same of each growth from one length to the next."""
    level = 1 - (1 - _LEVEL) / max(1, len(points) - 1)
    for before, after in pairwise(points):
        grown, allowed = after.candidate_ms - before.candidate_ms, after.control_ms - before.control_ms
        told = f"{before.length} to {after.length} grows by {grown:.3f}, the control by {allowed:.3f} ms"
        interval = t_interval(_more(before, after), level)
        if interval is None:
            if grown > allowed:
                yield True, told
        elif interval.low > 0:
            yield True, f"{told} ({_shown(interval)} more)"
        elif grown > allowed and interval.high > MARGIN * after.control_ms:
            yield False, f"{told}; {_shown(interval)} more is what startups leave possible"


def _more(before: Curve, after: Curve) -> list[float]:
    """By how many ms the candidate grows more than the control, in each startup that has both lengths."""
    return [
        (after.startups[s][1] - before.startups[s][1]) - (after.startups[s][0] - before.startups[s][0])
        for s in sorted(before.startups.keys() & after.startups.keys())
    ]


def _shown(interval: Interval) -> str:
    return f"{interval.low:+.3f} … {interval.high:+.3f} ms"

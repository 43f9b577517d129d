"""Which revision of a line brought a change: a binary search that steps over what cannot be judged.

The line runs from a revision without the change, number 0, to one with it, the last. Each probe halves what is left;
revisions that cannot be built or judged leave a gap, and the answer may then be several. Knows numbers and effects,
nothing of revisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from campaigns.judging.verdicts import Judgement


@dataclass(frozen=True)
class Bracket:
    """The change came after `before` and with `after` or earlier."""

    before: int
    after: int


def bracket(n: int, known: Mapping[int, bool | None]) -> Bracket:
    """`known`: whether a revision has the change, None where that cannot be told. The ends are known by definition."""
    after = min([n - 1, *(number for number, changed in known.items() if changed)])
    before = max([0, *(number for number, changed in known.items() if changed is False and number < after)])
    return Bracket(before, after)


def probe(n: int, known: Mapping[int, bool | None]) -> int | None:
    """The next to be judged; None when nothing is left between."""
    found = bracket(n, known)
    left = [number for number in range(found.before + 1, found.after) if number not in known]
    return next((number for number in _from_the_middle(found) if number in left), None)


def _from_the_middle(found: Bracket) -> Iterator[int]:
    """The middle, then ever farther from it: broken revisions come in runs, which one by one would all be built."""
    middle = (found.before + found.after) // 2
    yield middle
    away = 1
    while away < found.after - found.before:
        yield from (middle + away, middle - away)
        away *= 2
    yield from sorted(range(found.before + 1, found.after), key=lambda number: abs(number - middle))


def most_probes(n: int) -> int:
    """Of a line of n revisions of which none is stepped over: ceil(log2(n - 1))."""
    return max(0, n - 2).bit_length()


def beyond_half(judged: Judgement, whole: float) -> bool | None:
    """Whether an effect is the change's: beyond half of the `whole` change (a logarithm, of either sign).

    By its interval; where that holds the half itself, by the effect of a campaign that was decided. Else None.
    """
    sign = 1.0 if whole > 0 else -1.0
    half = abs(whole) / 2
    if judged.interval is not None and judged.effect is not None:
        low, high = sorted((sign * judged.interval.low, sign * judged.interval.high))
        if low > half or high < half:
            return low > half
        if judged.decided:
            return sign * judged.effect > half
    return None

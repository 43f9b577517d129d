"""How long a campaign will still take, from what it has measured so far: a startup costs once, a pair each time.

The first pair of a startup comes after lease, start, checks and warm-ups; to take that for the pace of pairs would be
far off. Knows times and counts, nothing of servers.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

Clock = Callable[[], float]


class Pace:
    """Told of each pair when it is done. Seconds of `clock`."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._last_s = clock()  # when the last pair ended, or the campaign began
        self._startup: int | None = None
        self._openings: list[float] = []  # from the pair before a startup to its first pair, without that pair itself
        self._pairs: list[float] = []  # from one pair to the next, block warm-ups included
        self._asked_s = 0.0

    def pair(self, startup: int, asked_s: float) -> None:
        """A pair of this startup is done; its own requests took `asked_s`."""
        now_s = self._clock()
        gap_s, self._last_s, self._asked_s = now_s - self._last_s, now_s, asked_s
        if startup == self._startup:
            self._pairs.append(gap_s)
        else:
            self._startup = startup
            self._openings.append(max(0.0, gap_s - asked_s))

    def remaining_s(self, pairs: int, startups: int) -> float:
        """Of so many pairs, in the running startup and in `startups` that have not begun."""
        pair_s = _mean(self._pairs) if self._pairs else self._asked_s
        return pairs * pair_s + startups * _mean(self._openings)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def in_words(seconds: float) -> str:
    return f"about {seconds:.0f} s left" if seconds < 120 else f"about {seconds / 60:.0f} min left"

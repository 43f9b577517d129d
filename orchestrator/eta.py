"""How long a campaign will still take, from what it has measured so far: a startup costs once, a pair each time.

The first pair of a startup comes after lease, start, checks and warm-ups; to take that for the pace of pairs would be
far off. Knows times and counts, nothing of servers.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

Clock = Callable[[], float]


class Pace:
    """Told when a startup begins and when each pair is done; startups may run side by side. Seconds of `clock`."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._last_s: dict[int, float] = {}  # by startup: when its last pair ended, or it began
        self._measuring: set[int] = set()  # startups that have a pair
        self._openings: list[float] = []  # from a startup's beginning to its first pair, without that pair itself
        self._pairs: list[float] = []  # from one pair to the next, block warm-ups included
        self._asked_s = 0.0

    def begin(self, startup: int) -> None:
        self._last_s[startup] = self._clock()

    def pair(self, startup: int, asked_s: float) -> None:
        """A pair of this startup is done; its own requests took `asked_s`."""
        now_s = self._clock()
        gap_s = now_s - self._last_s.get(startup, self._began_s)
        self._last_s[startup], self._asked_s = now_s, asked_s
        if startup in self._measuring:
            self._pairs.append(gap_s)
        else:
            self._measuring.add(startup)
            self._openings.append(max(0.0, gap_s - asked_s))

    def remaining_s(self, pairs: int, startups: int, at_once: int = 1) -> float:
        """Of so many pairs, in running startups and in `startups` that have not begun, `at_once` side by side."""
        pair_s = _mean(self._pairs) if self._pairs else self._asked_s
        return (pairs * pair_s + startups * _mean(self._openings)) / at_once


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def in_words(seconds: float) -> str:
    return f"about {seconds:.0f} s left" if seconds < 120 else f"about {seconds / 60:.0f} min left"

"""How long a campaign will still take, from what it has measured so far: a startup costs once, a block's warm-ups and
prompt once a block, a pair each time.

The first pair of a startup comes after lease, start, checks and warm-ups; to take that for the pace of pairs would be
far off. So would the pace of a short prompt for a long one: each fixture has its own, and while prompts are to come
that are much longer than any yet, what is told is the least. Knows times and the plan's pairs, nothing of servers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from campaigns.plan import PairKey

Clock = Callable[[], float]
LONG_CHARACTERS = 20_000  # bodies below that wait no seconds for their first token
LONGER = 1.25  # times the longest body yet


@dataclass(frozen=True)
class Left:
    """`at_least`: longer prompts are to come than were ever waited for."""

    seconds: float
    at_least: bool = False


class Pace:
    """Told when a startup begins and when each pair is done; startups may run side by side. Seconds of `clock`.

    `characters` of each fixture's body say which prompts are long.
    """

    def __init__(self, characters: Mapping[str, int], clock: Clock = monotonic) -> None:
        self._characters, self._clock = characters, clock
        self._began_s = clock()
        self._last_s: dict[int, float] = {}  # by startup: when its last pair ended, or it began
        self._begun: set[tuple[int, str, int]] = set()  # blocks that have a pair
        self._measuring: set[int] = set()  # startups that have one
        self._openings: list[float] = []  # from a startup's beginning to its first pair, without that pair itself
        self._firsts: dict[str, list[float]] = defaultdict(list)  # by fixture: a block's first pair, with warm-ups
        self._pairs: dict[str, list[float]] = defaultdict(list)  # from one pair of a block to its next
        self._asked: dict[str, list[float]] = defaultdict(list)  # the requests of a startup's first pair alone

    def begin(self, startup: int) -> None:
        self._last_s[startup] = self._clock()

    def pair(self, key: PairKey, asked_s: float) -> None:
        """This pair is done; its own requests took `asked_s`."""
        now_s = self._clock()
        gap_s = now_s - self._last_s.get(key.startup, self._began_s)
        self._last_s[key.startup] = now_s
        if key.startup not in self._measuring:
            self._openings.append(max(0.0, gap_s - asked_s))
            self._asked[key.fixture].append(asked_s)
        else:
            (self._pairs if _block(key) in self._begun else self._firsts)[key.fixture].append(gap_s)
        self._measuring.add(key.startup)
        self._begun.add(_block(key))

    def left(self, missing: Iterable[PairKey], at_once: int = 1) -> Left:
        """Of the pairs that are missing, in the plan's order, `at_once` startups side by side."""
        missing, begun, measuring = list(missing), set(self._begun), set(self._measuring)
        total_s = 0.0
        for key in missing:
            if key.startup not in measuring:
                total_s += _mean(self._openings) + self._pair_s(key.fixture)
            elif _block(key) in begun:
                total_s += self._pair_s(key.fixture)
            else:
                total_s += self._first_s(key.fixture)
            measuring.add(key.startup)
            begun.add(_block(key))
        return Left(total_s / at_once, self._longer({key.fixture for key in missing}))

    def _pair_s(self, fixture: str) -> float:
        return _known(fixture, self._pairs, self._asked, self._firsts)

    def _first_s(self, fixture: str) -> float:
        return _known(fixture, self._firsts, self._pairs, self._asked)

    def _longer(self, missing: set[str]) -> bool:
        """Whether a missing fixture is much longer than all that were waited for."""
        seen = {fixture for _, fixture, _ in self._begun}
        most = max((self._characters.get(fixture, 0) for fixture in seen), default=0)
        return any(self._characters.get(f, 0) > max(LONG_CHARACTERS, LONGER * most) for f in missing - seen)


def _block(key: PairKey) -> tuple[int, str, int]:
    return key.startup, key.fixture, key.seed


def _known(fixture: str, *tables: Mapping[str, list[float]]) -> float:
    """The first table's mean of this fixture, else of all fixtures; else so in the next table."""
    for table in tables:
        if values := table.get(fixture) or [value for each in table.values() for value in each]:
            return _mean(values)
    return 0.0


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def in_words(seconds: float, at_least: bool = False) -> str:
    told = f"{seconds:.0f} s left" if seconds < 120 else f"{seconds / 60:.0f} min left"
    return f"at least {told}, longer prompts are to come" if at_least else f"about {told}"

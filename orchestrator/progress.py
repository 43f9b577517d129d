"""What a person sees while a campaign runs: a bar with an ETA on a terminal, plain lines elsewhere.

Drawn between requests only. Knows the plan's counts, nothing of servers or the store.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from campaigns.plan import PairKey
from campaigns.printable import one_line, printable
from campaigns.records import Pair, Request
from orchestrator import terminal
from orchestrator.eta import Pace, in_words


@dataclass(frozen=True)
class Output:
    """What a campaign prints: its answer on standard output, its progress on standard error."""

    format: str = ""  # of the report; empty: the answer in a sentence
    quiet: bool = False

    def console(self) -> Console:
        return Console(file=terminal.drawing(sys.stderr), quiet=self.quiet)


ANSWER = Output()


class View:
    """Counts pairs towards `total`; `recorded` are those of an earlier life. A pair that is repeated counts once."""

    def __init__(self, console: Console, total: int, recorded: Iterable[PairKey]) -> None:
        self._console = console
        self.total, self._recorded = total, set(recorded)
        self._rounds = 0
        self._pace = Pace()
        self._begun: set[int] = set()
        self._asked_s: dict[int, float] = {}  # by startup: by its newest requests
        self._lock = threading.Lock()  # startups side by side tell from threads of their own
        self._bar: Progress | None = None
        self._task = TaskID(0)

    @property
    def done(self) -> int:
        return len(self._recorded)

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._console.is_terminal or self._console.is_dumb_terminal or "CI" in os.environ:
            yield  # a line for each pair: nothing here can redraw one
            return
        left = TextColumn("{task.fields[left]}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), left)
        with Progress(*columns, console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task("starting", total=self.total, completed=self.done, left="")
            yield
        self._bar = None

    def say(self, text: str) -> None:
        self._console.print(printable(text), highlight=False, markup=False, soft_wrap=True)

    def doing(self, what: str) -> None:
        """What takes its time now, so that no wait is silent."""
        if self._bar is not None:
            self._bar.update(self._task, description=escape(one_line(what)))
        else:
            self.say(what)

    def begin(self, startup: int) -> None:
        with self._lock:
            self._begun.add(startup)
            self._pace.begin(startup)

    def requests(self, requests: list[Request]) -> None:
        with self._lock:
            self._rounds += sum(len(request.rounds) for request in requests)
            for startup in {request.startup for request in requests}:
                took_ns = (r.end_ns - r.sched_ns for r in requests if r.startup == startup)
                self._asked_s[startup] = sum(took_ns) * 1e-9

    def pair(self, pair: Pair, startups: int, at_once: int = 1) -> float:
        """Returns the seconds that are left, as they are told here."""
        with self._lock:
            return self._pair(pair, startups, at_once)

    def _pair(self, pair: Pair, startups: int, at_once: int) -> float:
        self._recorded.add(pair.key)
        self._pace.pair(pair.key.startup, self._asked_s.get(pair.key.startup, 0.0))
        open_pairs, untouched = self.total - self.done, self._untouched(startups)
        left_s = self._pace.remaining_s(open_pairs, untouched, max(1, min(at_once, self._open(startups))))
        left = in_words(left_s)
        where = f"startup {pair.key.startup + 1}/{startups}  {pair.key.fixture} #{pair.key.repeat + 1}"
        if self._bar is not None:
            what = f"{where}  {self._rounds} rounds"
            self._bar.update(self._task, completed=self.done, description=escape(one_line(what)), left=left)
            return left_s
        verdict = f"E{int(pair.exactness)}" + ("" if pair.admissible else f" excluded: {', '.join(pair.reasons)}")
        self.say(f"{where}  {verdict}  pair {self.done}/{self.total}, {self._rounds} rounds, {left}")
        return left_s

    def _untouched(self, startups: int) -> int:
        """Startups that have not begun and want pairs."""
        return self._open(startups, self._begun)

    def _open(self, startups: int, without: Container[int] = ()) -> int:
        """Startups that still want pairs; every startup has as many."""
        recorded = Counter(key.startup for key in self._recorded)
        return sum(recorded[s] < self.total // startups for s in range(startups) if s not in without)

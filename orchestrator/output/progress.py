"""What a person sees while a campaign runs: a bar with an ETA on a terminal, plain lines elsewhere.

Drawn between requests only. Knows the plan's counts, nothing of servers or the store.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from campaigns.order import pair_keys
from campaigns.plan import CampaignPlan, PairKey
from campaigns.printable import one_line, printable
from campaigns.records import Pair, Request
from orchestrator.output import terminal
from orchestrator.output.eta import Left, Pace, in_words

MANY_PAIRS = 1_000  # of so many, what is left is added up once in
AGAIN_S = 1.0


@dataclass(frozen=True)
class Output:
    """What a campaign prints: its answer on standard output, its progress on standard error."""

    format: str = ""  # of the report; empty: the answer in a sentence
    quiet: bool = False

    def console(self) -> Console:
        return Console(file=terminal.drawing(sys.stderr), quiet=self.quiet)


ANSWER = Output()


class View:
    """Counts the plan's pairs; `recorded` are those of an earlier life. A pair that is repeated counts once."""

    def __init__(self, console: Console, plan: CampaignPlan, recorded: Iterable[PairKey] = ()) -> None:
        self._console = console
        self._plan, self._keys, self._recorded = plan, pair_keys(plan), set(recorded)
        self._rounds = 0
        self._pace = Pace({fixture.id: len(fixture.body) for fixture in plan.fixtures})
        self._left, self._left_at_s = Left(0.0), float("-inf")
        self._asked_s: dict[int, float] = {}  # by startup: by its newest requests
        self._lock = threading.Lock()  # startups side by side tell from threads of their own
        self._bar: Progress | None = None
        self._task = TaskID(0)

    @property
    def total(self) -> int:
        return len(self._keys)

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
            self._pace.begin(startup)

    def requests(self, requests: list[Request]) -> None:
        with self._lock:
            self._rounds += sum(len(request.rounds) for request in requests)
            for startup in {request.startup for request in requests}:
                took_ns = (r.end_ns - r.sched_ns for r in requests if r.startup == startup)
                self._asked_s[startup] = sum(took_ns) * 1e-9

    def pair(self, pair: Pair) -> Left:
        """Returns what is left, as it is told here."""
        with self._lock:
            return self._pair(pair)

    def _pair(self, pair: Pair) -> Left:
        key, startups = pair.key, self._plan.startups
        self._recorded.add(key)
        self._pace.pair(key, self._asked_s.get(key.startup, 0.0))
        left = self._left_now()
        told = in_words(left.seconds, left.at_least)
        where = f"startup {key.startup + 1}/{startups}  {key.fixture} #{key.repeat + 1}"
        if self._bar is not None:
            what = f"{where}  {self._rounds} rounds"
            self._bar.update(self._task, completed=self.done, description=escape(one_line(what)), left=told)
            return left
        verdict = f"E{int(pair.exactness)}" + ("" if pair.admissible else f" excluded: {', '.join(pair.reasons)}")
        self.say(f"{where}  {verdict}  pair {self.done}/{self.total}, {self._rounds} rounds, {told}")
        return left

    def _left_now(self) -> Left:
        if self.total - self.done < MANY_PAIRS or monotonic() > self._left_at_s + AGAIN_S:
            missing = [key for key in self._keys if key not in self._recorded]
            side_by_side = min(self._plan.lease.parallel, len({key.startup for key in missing}))
            self._left, self._left_at_s = self._pace.left(missing, max(1, side_by_side)), monotonic()
        return self._left

"""What a person sees while a campaign runs: a bar with an ETA on a terminal, plain lines elsewhere.

Drawn between requests only. Knows the plan's counts, nothing of servers or the store.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from campaigns.plan import PairKey
from campaigns.records import Pair, Request


class View:
    """Counts pairs towards `total`; `recorded` are those of an earlier life. A pair that is repeated counts once."""

    def __init__(self, console: Console, total: int, recorded: Iterable[PairKey]) -> None:
        self._console = console
        self.total, self._recorded, self._fresh = total, set(recorded), 0
        self._rounds = 0
        self._began_s = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    @property
    def done(self) -> int:
        return len(self._recorded)

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task("starting", total=self.total, completed=self.done)
            yield
        self._bar = None

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def requests(self, requests: list[Request]) -> None:
        self._rounds += sum(len(request.rounds) for request in requests)

    def pair(self, pair: Pair, startups: int) -> None:
        self._recorded.add(pair.key)
        self._fresh += 1
        where = f"startup {pair.key.startup + 1}/{startups}  {pair.key.fixture} #{pair.key.repeat + 1}"
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=f"{where}  {self._rounds} rounds")
            return
        verdict = f"E{int(pair.exactness)}" + ("" if pair.admissible else f" excluded: {', '.join(pair.reasons)}")
        self.say(f"{where}  {verdict}  pair {self.done}/{self.total}, {self._rounds} rounds, {self._remaining()}")

    def _remaining(self) -> str:
        left_s = (time.monotonic() - self._began_s) / self._fresh * (self.total - self.done)
        return f"about {left_s:.0f} s left" if left_s < 120 else f"about {left_s / 60:.0f} min left"

"""A request under torch's profiler: where its rounds go, by operator. Off unless a request asks.

Rounds run eagerly meanwhile. A kernel inside a replayed graph has a name and no caller, and names do not tell operators
apart (one library kernel serves many); launched one by one, each belongs to the range that launched it. So the times
are those of the kernels, and not of the round: what replay saves between them is not seen, and launches that overlap
wait inside their kernels, so that their times may add up to more than the round's. Knows no HTTP and no campaign.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from kernels.registry import Op
from kernels.routes import Routes
from runtime.engine import trace
from runtime.operators import Operators

SKIPPED = 1  # the first round under a profiler pays for its start
MOST_ROUNDS = 16 + SKIPPED  # a trace holds every call of a round


class Ranges:
    """An observer that names, in the profiler's trace, what runs."""

    def run(self, routes: Routes, site: str, op: Op, problem: Any, operands: tuple[Any, ...]) -> Any:
        schedule = routes.selection(op, problem).schedule
        with record_function(f"{trace.OPERATOR}{op.name}/{schedule.name}"):
            return routes.run(op, problem, *operands)

    def range(self, name: str) -> AbstractContextManager[Any]:
        return record_function(name if name == trace.ROUND else f"{trace.PIECE}{name}")


class RoundProfiler:
    """Begins with the first round, ends by itself after MOST_ROUNDS or when it is asked for its `result`.

    `keep`: where the Chrome trace goes; a file that is there already stays as it is.
    """

    def __init__(self, operators: Operators, device: torch.device, keep: Path | None = None) -> None:
        self._operators = operators
        self._keep = keep if keep is not None and not keep.exists() else None
        on_device = [ProfilerActivity.CUDA] if device.type == "cuda" else []
        self._activities = [ProfilerActivity.CPU, *on_device]
        self._running: profile | None = None
        self._result: trace.RoundProfile | None = None
        self._rounds_left = MOST_ROUNDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._running is not None:
            self._halt(self._running)

    def begin(self) -> None:
        assert self._operators.observer is None, "another observer is at work"
        running = profile(activities=self._activities, acc_events=True)  # there is one cycle; torch 2.11 warns without
        running.start()
        self._running, self._operators.observer = running, Ranges()

    def round_ended(self) -> None:
        self._rounds_left -= 1
        if not self._rounds_left:
            self._end()

    def result(self) -> trace.RoundProfile | None:
        """None where the request was over before a round could be told."""
        self._end()
        return self._result

    def _end(self) -> None:
        if (running := self._running) is None:
            return
        self._halt(running)
        with tempfile.TemporaryDirectory(prefix="dflash2-profile-") as folder:
            path = Path(folder) / "trace.json"
            running.export_chrome_trace(str(path))
            with path.open(encoding="utf-8") as file:
                self._result = trace.attribute(json.load(file)["traceEvents"], SKIPPED)
            if self._keep is not None:
                _copy(path, self._keep)

    def _halt(self, running: profile) -> None:
        self._running = self._operators.observer = None
        running.stop()


def _copy(trace_file: Path, to: Path) -> None:
    """No request ends for a trace that a full disk or a folder that is gone refuses."""
    try:
        shutil.copyfile(trace_file, to)
    except OSError as error:
        print(f"no Chrome trace is kept: {error}", file=sys.stderr, flush=True)

"""Durations of a round's phases, measured without making the device wait for the host.

On CUDA a phase is measured by events in the stream, which are read when the round is over; elsewhere by the host clock.
"""

import time
from itertools import pairwise

import torch

PHASES = ("draft", "verify", "sample", "commit")


class PhaseClock:
    """`mark` at the end of draft, verify and sample; `launched` behind what a commit launches; then `record`."""

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._marks = [self._now()]
        self._began_ns = time.perf_counter_ns() if self._on_device else self._marks[0]
        self._committed = self._marks[0]

    def mark(self) -> None:
        self._marks.append(self._now())

    def follows(self, ended_ns: int) -> None:
        """The round began on the device before the one before it had ended on the host: it counts from that end."""
        self._began_ns = ended_ns

    def launched(self) -> None:
        """May be said again, where a commit was repeated."""
        self._committed = self._now()

    def record(self) -> dict[str, int]:
        """`<phase>_ns` of every phase, `total_ns` and `ended_ns`; on CUDA when the commit has ended."""
        if self._on_device:
            self._committed.synchronize()
        ended_ns = time.perf_counter_ns()
        marks = [*self._marks, self._committed if self._on_device else ended_ns]
        spans = [self._between(begin, end) for begin, end in pairwise(marks)]
        phases = {f"{name}_ns": value for name, value in zip(PHASES, spans, strict=True)}
        return phases | {"total_ns": ended_ns - self._began_ns, "ended_ns": ended_ns}

    def _now(self) -> "torch.cuda.Event | int":
        if not self._on_device:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, begin: "torch.cuda.Event | int", end: "torch.cuda.Event | int") -> int:
        return int(begin.elapsed_time(end) * 1e6) if self._on_device else end - begin

"""Durations of a round's phases without waiting for the device more often than the round itself does.

On CUDA a phase is measured by events in the stream and read after the round's one wait; elsewhere by the host clock.
"""

import time
from itertools import pairwise

import torch

PHASES = ("draft", "verify", "sample", "commit")


class PhaseClock:
    """Call `mark` at the end of each phase in order; `record` reads them once the device has done all but the last."""

    def __init__(self, device: torch.device) -> None:
        self.on_device = device.type == "cuda"
        self.stamps = [time.perf_counter_ns()]
        self.events = [self._event()] if self.on_device else []

    def mark(self) -> None:
        if self.on_device:
            self.events.append(self._event())
        self.stamps.append(time.perf_counter_ns())

    def record(self) -> dict[str, int]:
        """`<phase>_ns` of every phase, `total_ns` and `ended_ns`."""
        host = [end - begin for begin, end in pairwise(self.stamps)]
        if self.on_device:
            host[:3] = [int(begin.elapsed_time(end) * 1e6) for begin, end in pairwise(self.events[:4])]
        phases = {f"{name}_ns": value for name, value in zip(PHASES, host, strict=True)}
        return phases | {"total_ns": self.stamps[-1] - self.stamps[0], "ended_ns": self.stamps[-1]}

    def _event(self) -> "torch.cuda.Event":
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

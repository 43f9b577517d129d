"""Timing on one CUDA device: a captured graph of the work, replayed; the median over replays.

Knows no operator. Times come from device events, so the host is not in them; the work of one replay should be far
larger than the second-level cache, and long against a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from kernels.capture import Graph, capture

WARM_UPS = 3


def captured(work: Callable[[], object]) -> Graph:
    """`work` once eagerly, then as a graph."""
    work()
    torch.cuda.synchronize()
    return capture(work)[0]


def times_ms(run: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of each of `repeats` runs, after warm-ups."""
    for _ in range(WARM_UPS):
        run()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def graph_ms(work: Callable[[], object], repeats: int = 25) -> float:
    """Median milliseconds of a replay of `work`."""
    return median(times_ms(captured(work).replay, repeats))


def eager_ms(work: Callable[[], object], repeats: int = 10) -> float:
    """Median milliseconds of `work` launched from the host, for peers that cannot be captured."""
    work()
    return median(times_ms(work, repeats))


def read_bandwidth() -> float:
    """Bytes per millisecond of a large streaming read, the limit that every figure is held against."""
    words = torch.ones(1 << 30, dtype=torch.int32, device="cuda")
    ms = min(times_ms(lambda: words.view(torch.float32).sum(), 20))
    return words.numel() * 4 / ms


def write_bandwidth() -> float:
    """Bytes per millisecond of a large streaming write."""
    words = torch.empty(1 << 30, dtype=torch.int32, device="cuda")
    ms = min(times_ms(words.zero_, 20))
    return words.numel() * 4 / ms

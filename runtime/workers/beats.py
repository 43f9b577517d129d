"""Signs of life among the ranks of one host: counters in a file that all of them map.

A rank that stands still leaves the others in a collective that never ends, whichever library it is of, and then nobody
reads their sockets. So each has a thread that counts up its own counter and looks at the others'. Time is counted in
the looker's own turns: a host that slept, or is too busy for everybody, makes nobody silent. Knows no requests and no
torch.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

TURN_S = 0.25
_COUNTER = struct.Struct("=Q")


class Beats:
    """Rank `rank` of `size`; `path` is a file that these ranks alone know. Zero says that a rank has not begun."""

    def __init__(self, path: Path, rank: int, size: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, size * _COUNTER.size)
            self._counters = mmap.mmap(descriptor, size * _COUNTER.size)
        finally:
            os.close(descriptor)
        self._rank, self._size = rank, size
        self._seen = [0] * size
        self._silent = [0] * size

    def turn(self) -> dict[int, int]:
        """Count up, and for how many turns each of the others has been silent."""
        _COUNTER.pack_into(self._counters, self._rank * _COUNTER.size, self._seen[self._rank] + 1)
        for rank in range(self._size):
            (count,) = _COUNTER.unpack_from(self._counters, rank * _COUNTER.size)
            self._silent[rank] = self._silent[rank] + 1 if count and count == self._seen[rank] else 0
            self._seen[rank] = count
        return {rank: turns for rank, turns in enumerate(self._silent) if rank != self._rank}

    def until_silent(self, limit_s: float, lost: Callable[[], str]) -> str:
        """Beats until a rank has been silent for `limit_s`, or `lost` says something; the sentence about it."""
        while not (told := lost()):
            silent = [rank for rank, turns in self.turn().items() if turns * TURN_S >= limit_s]
            if silent:
                return (
                    f"rank {silent[0]} has given no sign of life for {limit_s:g} s: it stands still or is gone, and "
                    "all others wait for it"
                )
            time.sleep(TURN_S)
        return told

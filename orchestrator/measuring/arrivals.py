"""When the bytes of each `recv` arrived: by the kernel's stamp where it can be trusted, else by the client's own. Pure.

The kernel stamps a segment when it comes in (SO_TIMESTAMPNS, CLOCK_REALTIME); the client's stamp waits until its
process runs again, on a busy host for milliseconds. One request is told by one clock: a single stamp that is missing or
that cannot be right hands all of them over to the client's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from campaigns.records import Stamp

_STEP_NS = 10_000  # the two clocks drift together: a larger change of their distance is a step of the wall clock


@dataclass(frozen=True)
class Arrivals:
    """CLOCK_MONOTONIC in nanoseconds, one per recv."""

    at_ns: tuple[int, ...]
    stamp: Stamp


def arrivals(stamps: Sequence[int], kernel: Sequence[int], clocks: Sequence[tuple[int, int]], send_ns: int) -> Arrivals:
    """`stamps` are the client's; `kernel` the kernel's, 0 where it gave none; `clocks` (monotonic, real) readings."""
    moved = _moved(kernel, clocks)
    if moved is None or not _possible(moved, stamps, send_ns):
        return Arrivals(tuple(stamps), Stamp.CLIENT)
    return Arrivals(tuple(moved), Stamp.KERNEL)


def _moved(kernel: Sequence[int], clocks: Sequence[tuple[int, int]]) -> list[int] | None:
    """On the monotonic clock; None where a stamp is missing or the wall clock was set meanwhile."""
    offsets = [monotonic_ns - real_ns for monotonic_ns, real_ns in clocks]
    if not offsets or 0 in kernel or max(offsets) - min(offsets) > _STEP_NS:
        return None
    offset = sum(offsets) // len(offsets)
    return [real_ns + offset for real_ns in kernel]


def _possible(moved: Sequence[int], stamps: Sequence[int], send_ns: int) -> bool:
    """Each after the one before (a process that was stopped has several behind its last return) and before its recv."""
    return all(
        before <= at_ns <= stamp_ns for before, at_ns, stamp_ns in zip((send_ns, *moved), moved, stamps, strict=False)
    )

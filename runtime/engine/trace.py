"""From a profiler's Chrome trace to what each operator took inside the rounds. Pure: knows the trace format alone.

Ranges of ours (`round`, `piece:NAME`, `op:OPERATOR/SCHEDULE`) are in the trace as `user_annotation`. Work on a device
is a `kernel`, `gpu_memcpy` or `gpu_memset` whose `correlation` is that of the call that launched it (`cuda_runtime`,
`cuda_driver`), and belongs to the innermost range round that call: so kernels that a library of ours launches are
found as well as torch's. Without a device a range's own time counts, whatever ran in it. Format: PyTorch's Kineto.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ROUND, PIECE, OPERATOR = "round", "piece:", "op:"
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})

Event = Mapping[str, Any]
Place = tuple[str, str, str]
"""Piece, operator, schedule; empty where there is none."""


class OperatorTime(NamedTuple):
    """All that one operator took under one schedule in one piece of the rounds (`draft`, `verify`, `sample`, `commit`).

    Empty names: what no operator covers, and what lies between the pieces. `launches` counts kernels and copies of a
    device, None without one.
    """

    piece: str
    operator: str
    schedule: str
    calls: int
    launches: int | None
    total_ns: int


@dataclass(frozen=True)
class RoundProfile:
    """Where `rounds` rounds went. `clock` is `device` (times of kernels) or `host`; `round_ns` is the host's, whole."""

    rounds: int
    clock: str
    round_ns: int
    times: tuple[OperatorTime, ...]

    def details(self) -> dict[str, Any]:
        """`metrics.profile` of an answer."""
        return {**vars(self), "times": [time._asdict() for time in self.times]}


@dataclass
class Range:
    """One of our ranges on a host thread; microseconds. `place` is what its own time belongs to."""

    start: float
    end: float
    place: Place
    is_operator: bool
    is_round: bool
    inner: float = 0.0

    @property
    def own(self) -> float:
        return self.end - self.start - self.inner


@dataclass
class _Sum:
    calls: int = 0
    launches: int = 0
    total_us: float = 0.0


@dataclass
class _Thread:
    """The ranges of one host thread that are open at the event being read."""

    open: list[Range] = field(default_factory=list)

    def at(self, moment: float) -> Range | None:
        while self.open and self.open[-1].end <= moment:
            self.open.pop()
        return self.open[-1] if self.open else None


def attribute(events: Iterable[Event], skip: int = 0) -> RoundProfile | None:
    """What the rounds behind the first `skip` took, by piece and operator; None where no round is left."""
    timed = [event for event in events if event.get("ph") == "X"]
    ranges, callers = _read([e for e in timed if e.get("cat") == "user_annotation" or e.get("cat") in _CALLS], skip)
    rounds = [found for found in ranges if found.is_round]
    if not rounds:
        return None
    work = [event for event in timed if event.get("cat") in _ON_DEVICE]
    sums: defaultdict[Place, _Sum] = defaultdict(_Sum)
    for found in ranges:
        sums[found.place].calls += found.is_operator
    if work:
        for event in work:
            _add(sums, callers.get(_correlation(event)), event["dur"])
    else:
        for found in ranges:
            _add(sums, found, found.own)
    return RoundProfile(
        rounds=len(rounds),
        clock="device" if work else "host",
        round_ns=_ns(sum(each.end - each.start for each in rounds)),
        times=tuple(
            OperatorTime(*place, each.calls, each.launches if work else None, _ns(each.total_us))
            for place, each in sorted(sums.items())
        ),
    )


def _read(events: list[Event], skip: int) -> tuple[list[Range], dict[Any, Range]]:
    """The ranges inside rounds, and the innermost one round every call by its correlation."""
    threads: defaultdict[Any, _Thread] = defaultdict(_Thread)
    ranges: list[Range] = []
    callers: dict[Any, Range] = {}
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        thread = threads[event.get("pid"), event.get("tid")]
        outer = thread.at(event["ts"])
        if event["cat"] in _CALLS:
            if outer is not None:
                callers[_correlation(event)] = outer
            continue
        if event["name"] == ROUND and skip:
            skip -= 1
            continue
        found = _range(event, outer)
        if found is not None:
            ranges.append(found)
            thread.open.append(found)
            if outer is not None:
                outer.inner += found.end - found.start
    return ranges, callers


def _range(event: Event, outer: Range | None) -> Range | None:
    """A round, or what lies in one; other ranges are not ours."""
    name, start = event["name"], event["ts"]
    end = start + event["dur"]
    if name == ROUND:
        return Range(start, end, ("", "", ""), is_operator=False, is_round=True)
    if outer is None:
        return None
    piece = outer.place[0]
    if name.startswith(PIECE):
        return Range(start, end, (name.removeprefix(PIECE), "", ""), is_operator=False, is_round=False)
    if name.startswith(OPERATOR):
        operator, _, schedule = name.removeprefix(OPERATOR).partition("/")
        return Range(start, end, (piece, operator, schedule), is_operator=True, is_round=False)
    return None


def _add(sums: defaultdict[Place, _Sum], found: Range | None, duration_us: float) -> None:
    if found is None:
        return  # launched outside the rounds
    sums[found.place].launches += 1
    sums[found.place].total_us += duration_us


def _correlation(event: Event) -> Any:
    return (event.get("args") or {}).get("correlation")


def _ns(us: float) -> int:
    return round(us * 1000)

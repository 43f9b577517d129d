"""What an operator is, which of its schedules runs, and how often each one ran.

A guard sees a `Problem` (shapes, dtypes, strides, machine), never tensor values, so that choosing a schedule is
testable without the device, legal during graph capture, and never waits for it. A refusal is a value: the default
schedule runs and the reason is kept. An unknown name is an error: a campaign must not measure something else.

This module knows neither torch nor any operator by name.

    KernelError
      UnknownOperator     a name no operator has
      UnknownSchedule     a name no schedule of that operator has
      LibraryError        (kernels.library) a native library that must not be loaded
      BuildError          (kernels.build) a native library that could not be built
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernels.machine import Machine

if TYPE_CHECKING:
    from kernels.build import BuildSpec

# A guard names the value that it refuses, and every length of a prompt is another value: a schedule's first reasons are
# kept in its words, later ones as a number.
MOST_REASONS = 8
OTHER_REASONS = "further reasons"


class KernelError(Exception):
    """Root of every error this package raises."""


class UnknownOperator(KernelError):
    pass


class UnknownSchedule(KernelError):
    pass


@dataclass(frozen=True)
class Refusal:
    """Why a schedule does not take a problem. The sentence names the value and what is supported."""

    reason: str


@dataclass(frozen=True)
class Bitwise:
    """The contract "same bytes as `parent`", another schedule of the same operator."""

    parent: str


@dataclass(frozen=True)
class Bound:
    """The contract "relative L2 error against the FP64 reference at most `rel_l2`"; `statement` says how.

    Where `parent` names a schedule, the error must not exceed that schedule's on the same operands either. `float32` is
    the bound of what is stored in FP32, where no rounding to 16 bits is as large as one wrong element; None: the same.
    """

    rel_l2: float
    statement: str
    parent: str | None = None
    float32: float | None = None


@dataclass(frozen=True)
class Schedule:
    """One way to run an operator. `revision` rises whenever its bytes or its interface may change.

    `machine` is where it runs, None for everywhere; `guard` judges the problem beyond that.
    """

    name: str
    revision: int
    contract: Bitwise | Bound
    guard: Callable[[Any], Refusal | None]
    run: Callable[..., Any]
    machine: Machine | None = None
    build: BuildSpec | None = None
    summary: str = ""

    def refusal(self, problem: Any) -> Refusal | None:
        """Why this does not take `problem`: the machine first, then the guard."""
        reason = self.machine.refusal(problem.device, problem.arch) if self.machine else None
        return self.guard(problem) if reason is None else Refusal(reason)


@dataclass(frozen=True)
class Op:
    """An operator: its numerical reference, its schedules, and the torch schedule that runs unless asked otherwise."""

    name: str
    reference: Callable[..., Any]
    schedules: tuple[Schedule, ...]
    default: str

    def __post_init__(self) -> None:
        names = [schedule.name for schedule in self.schedules]
        assert len(names) == len(set(names)), f"{self.name} lists a schedule twice: {names}"
        assert self.default in names, f"{self.name} has no schedule {self.default!r} to be its default"
        for schedule in self.schedules:
            parent = schedule.contract.parent
            assert parent is None or parent in names, f"{schedule.name} names the unknown parent {parent!r}"

    def schedule(self, name: str) -> Schedule:
        for schedule in self.schedules:
            if schedule.name == name:
                return schedule
        known = ", ".join(schedule.name for schedule in self.schedules)
        raise UnknownSchedule(f"operator {self.name!r} has no schedule {name!r}; it has: {known}")

    def parent(self, schedule: Schedule) -> Schedule | None:
        """The schedule whose bytes, or whose error, `schedule` promises; None where it names none."""
        return self.schedule(schedule.contract.parent) if schedule.contract.parent else None


@dataclass(frozen=True)
class Selection:
    """The schedule that runs, the one that was asked for, and every refusal met on the way."""

    schedule: Schedule
    requested: str | None
    refusals: tuple[tuple[str, Refusal], ...] = ()

    def explain(self) -> str:
        if not self.refusals:
            why = "as requested" if self.requested else "the default"
            return f"{self.schedule.name}: {why}"
        reasons = "; ".join(f"{name} refused: {refusal.reason}" for name, refusal in self.refusals)
        return f"{self.schedule.name}: {reasons}"


def select(op: Op, problem: Hashable, requested: str | None = None) -> Selection:
    """The requested schedule if it takes `problem`, else the default with the reason kept."""
    if requested is None or requested == op.default:
        return Selection(op.schedule(op.default), requested)
    wanted = op.schedule(requested)
    refusal = wanted.refusal(problem)
    if refusal is None:
        return Selection(wanted, requested)
    return Selection(op.schedule(op.default), requested, ((requested, refusal),))


@dataclass
class Routes:
    """Which schedule each operator takes on one rank, and how often each one ran. Owned by that rank's engine."""

    rank: int = 0
    _enabled: dict[str, str] = field(default_factory=dict)
    _hits: dict[tuple[str, str], int] = field(default_factory=dict)
    _refused: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    _selections: dict[tuple[str, Hashable], Selection] = field(default_factory=dict)

    @property
    def enabled(self) -> Mapping[str, str]:
        """Operator to schedule, only what an arm asked for."""
        return dict(self._enabled)

    def enable(self, schedules: Mapping[str, str]) -> None:
        """Replace the enabled schedules. Nothing changes if a name is unknown or a native library is not sound."""
        # Imported here because the operators' own modules import this one.
        from kernels.library import prepare
        from kernels.operators import operator

        for name, schedule in schedules.items():
            prepare(operator(name).schedule(schedule))
        self._enabled = dict(schedules)
        self._selections.clear()

    def selection(self, op: Op, problem: Hashable) -> Selection:
        """The choice for `problem`, remembered until the next `enable`."""
        key = (op.name, problem)
        found = self._selections.get(key)
        if found is None:
            found = self._selections[key] = select(op, problem, self._enabled.get(op.name))
        return found

    def run(self, op: Op, problem: Hashable, *operands: Any, **options: Any) -> Any:
        """Run `op` through the selected schedule and count one hit under the schedule that really ran."""
        chosen = self.selection(op, problem)
        self.count(op.name, chosen)
        return chosen.schedule.run(*operands, **options)

    def count(self, operator: str, chosen: Selection, hits: int = 1) -> None:
        """Count `hits` runs; a graph replay calls this for what it captured."""
        key = (operator, chosen.schedule.name)
        self._hits[key] = self._hits.get(key, 0) + hits
        for name, refusal in chosen.refusals:
            reasons = self._refused.setdefault((operator, name), {})
            reason = refusal.reason if refusal.reason in reasons or len(reasons) < MOST_REASONS else OTHER_REASONS
            reasons[reason] = reasons.get(reason, 0) + hits

    def counters(self) -> list[dict[str, Any]]:
        """Hits since start, never reset: `[{"rank", "operator", "schedule", "hits"}]`."""
        return [
            {"rank": self.rank, "operator": operator, "schedule": schedule, "hits": hits}
            for (operator, schedule), hits in sorted(self._hits.items())
        ]

    def refusals(self) -> list[dict[str, Any]]:
        """Calls that took the default instead, since start: `[{"rank", "operator", "schedule", "reason", "calls"}]`."""
        return [
            {"rank": self.rank, "operator": operator, "schedule": schedule, "reason": reason, "calls": calls}
            for (operator, schedule), reasons in sorted(self._refused.items())
            for reason, calls in reasons.items()
        ]


def refuse_unless(condition: bool, reason: str) -> Refusal | None:
    """One guard line: None where `condition` holds."""
    return None if condition else Refusal(reason)


def first_refusal(refusals: Iterable[Refusal | None]) -> Refusal | None:
    """The first line of a guard that refuses."""
    return next((refusal for refusal in refusals if refusal is not None), None)

"""What an operator and a schedule are, and which schedule takes a problem.

A guard sees a `Problem` (shapes, dtypes, strides, machine), never tensor values, so that choosing a schedule is
testable without the device, legal during graph capture, and never waits for it. A refusal is a value: the default
schedule runs and the reason is kept. An unknown name is an error: a campaign must not measure something else.

This module knows neither torch nor any operator by name, and loads no library; `kernels.routes` does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from kernels.errors import UnknownSchedule
from kernels.native.machine import Machine
from kernels.native.specification import BuildSpec


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
    `roundings` is the least share of 16-bit outputs of a problem's first state that are the reference's, rounded: what
    sums in FP32 has nearly all, what drops bits behind FP16's before it rounds has not; None: nothing is asked.
    """

    rel_l2: float
    statement: str
    parent: str | None = None
    float32: float | None = None
    roundings: float | None = None


@dataclass(frozen=True)
class Library:
    """A Python package that a schedule calls: the `module` it imports, the `package` that has it."""

    module: str
    package: str

    def refusal(self) -> str | None:
        """Why nothing that needs it runs here, None where it is installed; imports nothing."""
        return None if find_spec(self.module) else f"{self.package} is not installed"


@dataclass(frozen=True)
class Schedule:
    """One way to run an operator. `revision` rises whenever its bytes or its interface may change.

    `machine` is where it runs, None for everywhere, `library` what must be installed there; `guard` judges the problem
    beyond that.
    """

    name: str
    revision: int
    contract: Bitwise | Bound
    guard: Callable[[Any], Refusal | None]
    run: Callable[..., Any]
    machine: Machine | None = None
    build: BuildSpec | None = None
    summary: str = ""
    library: Library | None = None

    def refusal(self, problem: Any) -> Refusal | None:
        """Why this does not take `problem`: the machine first, then the library, then the guard."""
        reason = self.machine.refusal(problem.device, problem.arch) if self.machine else None
        if reason is None and self.library:
            reason = self.library.refusal()
        return self.guard(problem) if reason is None else Refusal(reason)


@dataclass(frozen=True)
class Op:
    """An operator: its numerical reference, its schedules, and the torch schedule that runs unless asked otherwise.

    `preferred` name schedules that come before the default, each where it takes the problem: libraries that a machine
    may have. Which one ran is counted under its own name.
    """

    name: str
    reference: Callable[..., Any]
    schedules: tuple[Schedule, ...]
    default: str
    preferred: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [schedule.name for schedule in self.schedules]
        assert len(names) == len(set(names)), f"{self.name} lists a schedule twice: {names}"
        for name in (self.default, *self.preferred):
            assert name in names, f"{self.name} has no schedule {name!r} to be its default"
        for schedule in self.schedules:
            parent = schedule.contract.parent
            assert parent is None or parent in names, f"{schedule.name} names the unknown parent {parent!r}"

    def schedule(self, name: str) -> Schedule:
        for schedule in self.schedules:
            if schedule.name == name:
                return schedule
        known = ", ".join(schedule.name for schedule in self.schedules)
        raise UnknownSchedule(f"operator {self.name!r} has no schedule {name!r}; it has: {known}")

    def unasked(self, problem: Any) -> Schedule:
        """What takes `problem` where no other schedule is asked for, or the one asked for refuses."""
        candidates = (self.schedule(name) for name in self.preferred)
        return next((found for found in candidates if found.refusal(problem) is None), self.schedule(self.default))

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
    """The requested schedule if it takes `problem`, else what runs unasked, with the reason kept."""
    if requested is None:
        return Selection(op.unasked(problem), requested)
    wanted = op.schedule(requested)
    refusal = None if requested == op.default else wanted.refusal(problem)
    if refusal is None:
        return Selection(wanted, requested)
    return Selection(op.unasked(problem), requested, ((requested, refusal),))


def refuse_unless(condition: bool, reason: str) -> Refusal | None:
    """One guard line: None where `condition` holds."""
    return None if condition else Refusal(reason)


def first_refusal(refusals: Iterable[Refusal | None]) -> Refusal | None:
    """The first line of a guard that refuses."""
    return next((refusal for refusal in refusals if refusal is not None), None)

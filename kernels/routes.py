"""Which schedule each operator takes on one rank, and how often each one ran.

Knows the operators by name and loads what their schedules need; knows no tensor's values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernels.native.library import prepare
from kernels.operators import OPERATORS, operator
from kernels.registry import Op, Selection, select

# A guard names the value that it refuses, and every length of a prompt is another value: a schedule's first reasons are
# kept in its words, later ones as a number.
MOST_REASONS = 8
OTHER_REASONS = "further reasons"


@dataclass
class Routes:
    """Which schedule each operator takes on one rank, and how often each one ran. Owned by that rank's engine."""

    rank: int = 0
    _enabled: dict[str, str] = field(default_factory=dict)
    _hits: dict[tuple[str, str], int] = field(default_factory=dict)
    _refused: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    _selections: dict[tuple[str, Hashable], Selection] = field(default_factory=dict)

    @classmethod
    def differentiable(cls) -> Routes:
        """Routes on which every operator takes its default: torch's own operations, which alone have a derivative.

        Unasked, a machine may prefer a library's kernel, through which no gradient comes.
        """
        return cls(_enabled={op.name: op.default for op in OPERATORS})

    @property
    def enabled(self) -> Mapping[str, str]:
        """Operator to schedule, only what an arm asked for."""
        return dict(self._enabled)

    def enable(self, schedules: Mapping[str, str]) -> None:
        """Replace the enabled schedules. Nothing changes if a name is unknown or a native library is not sound."""
        for name, schedule in schedules.items():
            prepare(operator(name).schedule(schedule).build)
        self._enabled = dict(schedules)
        self._selections.clear()

    @contextmanager
    def unasked(self) -> Iterator[None]:
        """Inside, every operator takes what it takes where no arm asked for anything."""
        asked = self._enabled, self._selections
        self._enabled, self._selections = {}, {}
        try:
            yield
        finally:
            self._enabled, self._selections = asked

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

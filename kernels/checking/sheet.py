"""What the gates write: one JSON line a check, and the table that counts them. Knows no gate."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TextIO

from kernels.registry import Op, Schedule

GATES = ("contract", "hammer", "sanitizer", "working-set")
STATUSES = ("passed", "failed", "held")


@dataclass(frozen=True)
class Subject:
    """One schedule on one device, and the library that runs."""

    op: Op
    schedule: Schedule
    device: str
    library_sha256: str
    host: str

    @property
    def name(self) -> str:
        return f"{self.op.name}/{self.schedule.name}"


@dataclass(frozen=True)
class Line:
    """One check, as it is written."""

    gate: str
    operator: str
    schedule: str
    revision: int
    library_sha256: str
    check: str
    problem: str
    status: str
    message: str
    figures: dict[str, Any]
    host: str
    utc: str


def line_of(
    subject: Subject, gate: str, check: str, problem: str, status: str, message: str, figures: dict[str, Any]
) -> Line:
    names = (subject.op.name, subject.schedule.name, subject.schedule.revision, subject.library_sha256)
    return Line(gate, *names, check, problem, status, message, figures, subject.host, datetime.now(UTC).isoformat())


def finite(value: Any) -> Any:
    """The same value with null for what JSON has no number for; a finding's message says what it was."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


@dataclass
class Sheet:
    """Writes lines as they come and counts them for the table."""

    out: TextIO
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    notes: dict[tuple[str, str], str] = field(default_factory=dict)

    def write(self, line: Line) -> None:
        print(json.dumps(finite(asdict(line)), allow_nan=False), file=self.out, flush=True)
        subject = f"{line.operator}/{line.schedule}"
        self.counts[subject, line.gate, line.status] += 1
        if line.status != "passed" or line.gate == "working-set":
            self.notes.setdefault((subject, line.gate), f"{line.problem} {line.check}: {line.message}")

    def found(self, subject: str, gate: str) -> bool:
        """Whether any check of this gate was written."""
        return any(self.counts[subject, gate, status] for status in STATUSES)

    @property
    def open_checks(self) -> int:
        """Checks that did not pass."""
        return sum(count for (_, _, status), count in self.counts.items() if status != "passed")

    def table(self) -> list[str]:
        subjects = list(dict.fromkeys(subject for subject, _, _ in self.counts))
        rows = [f"{'schedule':34} {'gate':12} {'passed':>7} {'failed':>7} {'held':>7}  first remark"]
        for subject in subjects:
            for gate in GATES:
                if self.found(subject, gate):
                    numbers = " ".join(f"{self.counts[subject, gate, status]:7}" for status in STATUSES)
                    rows.append(f"{subject:34} {gate:12} {numbers}  {self.notes.get((subject, gate), '')}"[:200])
        return rows

"""The gates of native schedules: `python -m kernels.gate [--all] [operator[/schedule] …] [--out FILE]`.

Three gates, one JSON line per check, each with the sha256 of the library it speaks about:

    contract      bytes or bound, FP64 error, guard bytes, untouched state, graph replay    (kernels.checks)
    sanitizer     memcheck, synccheck and racecheck, CUDA only                               (kernels.sanitizer)
    working-set   faster than its control over distinct layer buffers                        (kernels.bench)

A check is `passed`, `failed`, or `held` where nothing could be shown. The working set is timed only if the contract
held. The lines are what `campaign probe import` reads; the table at the end goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

import torch

from kernels import bench, checks, sanitizer
from kernels.cases import cases_of
from kernels.cases.trial import Case
from kernels.library import prepare
from kernels.operators import OPERATORS, operator
from kernels.registry import KernelError, Op, Schedule, UnknownOperator, UnknownSchedule

GATES = ("contract", "sanitizer", "working-set")
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

    def table(self) -> list[str]:
        subjects = list(dict.fromkeys(subject for subject, _, _ in self.counts))
        rows = [f"{'schedule':34} {'gate':12} {'passed':>7} {'failed':>7} {'held':>7}  first remark"]
        for subject in subjects:
            for gate in GATES:
                found = [self.counts[subject, gate, status] for status in STATUSES]
                if any(found):
                    numbers = " ".join(f"{count:7}" for count in found)
                    rows.append(f"{subject:34} {gate:12} {numbers}  {self.notes.get((subject, gate), '')}"[:200])
        return rows


def finite(value: Any) -> Any:
    """The same value with null for what JSON has no number for; a finding's message says what it was."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


def line_of(
    subject: Subject, gate: str, check: str, problem: str, status: str, message: str, figures: dict[str, Any]
) -> Line:
    names = (subject.op.name, subject.schedule.name, subject.schedule.revision, subject.library_sha256)
    return Line(gate, *names, check, problem, status, message, figures, subject.host, datetime.now(UTC).isoformat())


def contract_lines(subject: Subject, case: Case) -> Iterator[Line]:
    """Every finding on one problem; an exception is a failed check, not the end of the gate."""
    try:
        trial = case.make(subject.device)
        refusal = subject.schedule.guard(trial.problem)
        if refusal:
            return
        for found in checks.findings(subject.op, subject.schedule, trial):
            status = "passed" if found.passed else "failed"
            yield line_of(subject, "contract", found.check, case.id, status, found.message, found.figures)
    except (RuntimeError, KernelError, AssertionError) as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        yield line_of(subject, "contract", "finishes", case.id, "failed", told, {})


def sanitizer_lines(subject: Subject, cases: Sequence[Case], limit_s: float) -> Iterator[Line]:
    """One run of each tool over all the problems it looks at and the schedule takes."""
    taken = [case for case in cases if subject.schedule.guard(case.make(subject.device).problem) is None]
    torch.cuda.empty_cache()
    for tool in sanitizer.TOOLS:
        names = [case.id for case in taken if sanitizer.looks_at(tool, case.length)]
        found = sanitizer.check(tool, subject.name, names, limit_s) if names else {}
        for name, verdict in found.items():
            yield line_of(subject, "sanitizer", tool, name, verdict.status, verdict.message, {"limit_s": limit_s})


def working_set_line(subject: Subject, pairs: int) -> Line | None:
    """Faster than its control, or not, or undecided."""
    work = bench.accepted(subject.op, subject.schedule, subject.device)
    if work is None:
        return None
    found = bench.compare(*work, bench.control_of(subject.op, subject.schedule), subject.schedule, pairs)
    span = f"{found.ratio:.3f} [{found.ratio_low:.3f}, {found.ratio_high:.3f}] of {found.control}"
    times = f"{found.candidate_ms:.3f} ms against {found.control_ms:.3f} ms"
    status, check = timed_status(found), f"{found.layers}-layers"
    return line_of(subject, "working-set", check, found.problem, status, f"{span}: {times}", asdict(found))


def timed_status(found: bench.Comparison) -> str:
    """Passed where the whole interval is faster, failed where the whole interval is not, held where it says neither."""
    if found.ratio_high < 1:
        return "passed"
    return "failed" if found.ratio_low >= 1 else "held"


def wanted(names: list[str], every: bool, device: str) -> list[tuple[Op, Schedule]]:
    """The named schedules; with `--all`, every one but the defaults that this device's problems can reach."""
    found = []
    for name in names or [op.name for op in OPERATORS if every]:
        op_name, _, schedule_name = name.partition("/")
        op = operator(op_name)
        chosen = (op.schedule(schedule_name),) if schedule_name else op.schedules
        found += [(op, schedule) for schedule in chosen if schedule_name or schedule.name != op.default]
    return [pair for pair in found if reachable(*pair, device)]


def reachable(op: Op, schedule: Schedule, device: str) -> bool:
    """True where the schedule takes at least one of the device's problems. Native ones are known by their language."""
    if schedule.build is not None:
        return (schedule.build.language == "cuda") == (device == "cuda")
    return any(schedule.guard(case.make(device).problem) is None for case in cases_of(op, device)[:1])


def gate(subject: Subject, options: argparse.Namespace, sheet: Sheet) -> None:
    cases = [case for case in cases_of(subject.op, subject.device) if options.cases in case.id]
    if "contract" in options.gate:
        for case in cases:
            for line in contract_lines(subject, case):
                sheet.write(line)
        if not any(sheet.counts[subject.name, "contract", status] for status in STATUSES):
            told = f"none of {len(cases)} problems is taken by this schedule"
            sheet.write(line_of(subject, "contract", "covers", "", "held", told, {}))
    broken = sheet.counts[subject.name, "contract", "failed"]
    if "working-set" in options.gate and not broken:
        timed = working_set_line(subject, options.pairs)
        if timed:
            sheet.write(timed)
    if "sanitizer" in options.gate and subject.device == "cuda":
        for line in sanitizer_lines(subject, cases, options.limit_s):
            sheet.write(line)


def subject_of(op: Op, schedule: Schedule, device: str) -> Subject:
    library = prepare(schedule)
    host = f"{platform.node()} {torch.cuda.get_device_name()}" if device == "cuda" else platform.node()
    return Subject(op, schedule, device, library.sha256 if library else "", host)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kernels.gate", description="Check schedules before they count.")
    parser.add_argument("names", nargs="*", help="operator or operator/schedule")
    parser.add_argument("--all", action="store_true", help="every schedule of this device but the defaults")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--gate", action="append", choices=GATES, help="only this gate; may be repeated")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only problems whose id contains TEXT")
    parser.add_argument("--pairs", type=int, default=31, help="timed pairs of a working set (default: %(default)s)")
    parser.add_argument("--limit-s", type=float, default=240, help="seconds for a sanitizer run (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="write the lines here (default: standard output)")
    options = parser.parse_args(arguments)
    options.gate = options.gate or list(GATES)
    if not options.all and not options.names:
        parser.error("name an operator or operator/schedule, or say --all")
    if options.out and options.out.exists():
        parser.error(f"{options.out} exists; gates never overwrite what an earlier run found")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        pairs = wanted(options.names, options.all, options.device)
        subjects = [subject_of(op, schedule, options.device) for op, schedule in pairs]
    except KernelError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, (UnknownOperator, UnknownSchedule)) else 1
    with options.out.open("x") if options.out else sys.stdout as out:
        sheet = Sheet(out)
        for subject in subjects:
            gate(subject, options, sheet)
    print("\n".join(sheet.table()), file=sys.stderr)
    bad = sum(count for (_, _, status), count in sheet.counts.items() if status != "passed")
    return int(bad > 0 or not sheet.counts)


if __name__ == "__main__":
    sys.exit(main())

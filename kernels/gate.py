"""The gates of native schedules: `python -m kernels.gate [--all] [operator[/schedule] …] [--out FILE]`.

Four gates, one JSON line per check, each with the sha256 of the library it speaks about:

    contract      bytes or bound, FP64 error, guard bytes, untouched state, graph replay    (checking.checks)
    hammer        thousands of launches without waiting, native CUDA only                        (checking.hammer)
    sanitizer     memcheck, synccheck and racecheck, native CUDA only                        (checking.sanitizer)
    working-set   faster than its control over distinct layer buffers                        (kernels.bench)

A check is `passed`, `failed`, or `held` where nothing could be shown. With `--jobs` the first three run in processes of
their own, several at once on one device; a working set is timed when they are done, and only if the contract and the
hammer held. The lines are what `campaign probe import` reads; the table at the end goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import torch

from kernels import bench
from kernels.checking import before, checks, fence, hammer, sanitizer
from kernels.checking.cases import cases_of, hammered_of, sanitized_of
from kernels.checking.cases.trial import Case, Trial
from kernels.checking.checks import Finding
from kernels.checking.crew import Crew
from kernels.checking.sheet import GATES, Line, Sheet, Subject, line_of
from kernels.command_line import Parser
from kernels.errors import KernelError, UnknownOperator, UnknownSchedule
from kernels.native.library import prepare
from kernels.operators import OPERATORS, operator
from kernels.registry import Op, Schedule


def contract(subject: Subject, case: Case, trial: Trial) -> Iterator[Finding]:
    yield from checks.findings(subject.op, subject.schedule, trial)
    if subject.device == "cpu":
        yield fence.finding(subject.schedule, case)
    elif subject.schedule.build is not None:
        yield from before.findings(subject.schedule, trial)


def lines_of(subject: Subject, gate: str, case: Case, launches: int) -> Iterator[Line]:
    """Every finding of the contract or the hammer on one problem; an exception is a failed check, not the end."""
    try:
        trial = case.make(subject.device)
        if subject.schedule.refusal(trial.problem):
            return
        held = (
            hammer.findings(subject.schedule, trial, launches) if gate == "hammer" else contract(subject, case, trial)
        )
        for finding in held:
            status = "passed" if finding.passed else "failed"
            yield line_of(subject, gate, finding.check, case.id, status, finding.message, finding.figures)
    except (RuntimeError, KernelError, AssertionError) as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        yield line_of(subject, gate, "finishes", case.id, "failed", told, {})


def chosen(cases: Sequence[Case], text: str) -> list[Case]:
    return [case for case in cases if text in case.id]


def unmatched(subjects: Sequence[Subject], text: str) -> str:
    """Why `--cases TEXT` chooses nothing; empty where it chooses something."""
    found = [
        case.id
        for op, device in dict.fromkeys((subject.op, subject.device) for subject in subjects)
        for case in (*cases_of(op, device), *hammered_of(op), *sanitized_of(op))
    ]
    if not found or any(text in case_id for case_id in found):
        return ""
    return f"no problem's id contains {text}; there are {', '.join(dict.fromkeys(found[:8]))}, …"


def check_lines(subject: Subject, options: argparse.Namespace) -> Iterator[Line]:
    """The contract, then the hammer."""
    if "contract" in options.gate:
        cases, covered = chosen(cases_of(subject.op, subject.device), options.cases), False
        for case in cases:
            for line in lines_of(subject, "contract", case, 0):
                covered = True
                yield line
        if not covered:
            told = f"none of {len(cases)} problems is taken by this schedule"
            yield line_of(subject, "contract", "covers", "", "held", told, {})
    if "hammer" in options.gate and subject.device == "cuda" and subject.schedule.build:
        for case in chosen(hammered_of(subject.op), options.cases):
            yield from lines_of(subject, "hammer", case, options.launches)


def sanitized(subjects: Sequence[Subject], text: str) -> list[tuple[Subject, Case]]:
    """The problems that the native schedules of one operator take."""
    native, found = [subject for subject in subjects if subject.schedule.build], []
    for case in chosen(sanitized_of(subjects[0].op), text):
        problem = case.make("cuda").problem
        found += [(subject, case) for subject in native if subject.schedule.refusal(problem) is None]
    torch.cuda.empty_cache()
    return found


def sanitizer_lines(tool: str, pairs: Sequence[tuple[Subject, Case]], limit_s: float) -> list[Line]:
    """One process of a tool over every problem of one operator that it looks at."""
    looked = [pair for pair in pairs if sanitizer.looks_at(tool, pair[1].length)]
    subjects = {f"{subject.schedule.name} {case.id}": subject for subject, case in looked}
    found = sanitizer.check(tool, looked[0][0].op.name, list(subjects), limit_s) if looked else {}
    return [
        line_of(subjects[name], "sanitizer", tool, name.partition(" ")[2], verdict.status, verdict.message,
                {"limit_s": limit_s})
        for name, verdict in found.items()
    ]  # fmt: skip


def working_set_line(subject: Subject, pairs: int) -> Line | None:
    """Faster than its control, or not, or undecided."""
    work = bench.accepted(subject.op, subject.schedule, subject.device)
    if work is None:
        return None
    try:
        found = bench.compare(*work, bench.control_of(subject.op, subject.schedule), subject.schedule, pairs)
    except RuntimeError as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        return line_of(subject, "working-set", f"{work[1]}-layers", work[0].id, "held", told, {})
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
        schedules = (op.schedule(schedule_name),) if schedule_name else op.schedules
        found += [(op, schedule) for schedule in schedules if schedule_name or schedule.name != op.default]
    return [pair for pair in found if reachable(*pair, device)]


def reachable(op: Op, schedule: Schedule, device: str) -> bool:
    """True where the schedule takes at least one of the device's problems. Native ones are known by their language."""
    if schedule.build is not None:
        return (schedule.build.language == "cuda") == (device == "cuda")
    return any(schedule.refusal(case.make(device).problem) is None for case in cases_of(op, device)[:1])


def check_all(subjects: Sequence[Subject], options: argparse.Namespace, sheet: Sheet) -> None:
    """Everything but the timing: here one after another, or by a crew of processes."""
    if options.jobs == 1:
        for subject in subjects:
            for line in check_lines(subject, options):
                sheet.write(line)
    with Crew(options.jobs) as crew:
        if options.jobs > 1:
            crew.check(subjects, options)
        if "sanitizer" in options.gate and options.device == "cuda":
            for _, group in groupby(subjects, key=lambda subject: subject.op.name):
                pairs = sanitized(list(group), options.cases)
                for tool in sanitizer.TOOLS:
                    crew.take(sanitizer_lines, tool, pairs, options.limit_s)
        for line in crew.lines():
            sheet.write(line)


def time_all(subjects: Sequence[Subject], options: argparse.Namespace, sheet: Sheet) -> None:
    for subject in subjects:
        broken = sum(sheet.counts[subject.name, gate, "failed"] for gate in ("contract", "hammer"))
        timed = None if broken else working_set_line(subject, options.pairs)
        if timed:
            sheet.write(timed)


def subject_of(op: Op, schedule: Schedule, device: str) -> Subject:
    library = prepare(schedule.build)
    host = f"{platform.node()} {torch.cuda.get_device_name()}" if device == "cuda" else platform.node()
    return Subject(op, schedule, device, library.sha256 if library else "", host)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="python -m kernels.gate", description="Check schedules before they count.")
    parser.add_argument("names", nargs="*", help="operator or operator/schedule")
    parser.add_argument("--all", action="store_true", help="every schedule of this device but the defaults")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--gate", action="append", choices=GATES, help="only this gate; may be repeated")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only problems whose id contains TEXT")
    parser.add_argument("--pairs", type=int, default=31, help="timed pairs of a working set (default: %(default)s)")
    parser.add_argument("--launches", type=int, default=4096, help="of each way to hammer (default: %(default)s)")
    parser.add_argument("--limit-s", type=float, default=240, help="seconds for a process (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="write the lines here (default: standard output)")
    options = parser.parse_args(arguments)
    options.gate = options.gate or list(GATES)
    if not options.all and not options.names:
        parser.error("name an operator or operator/schedule, or say --all")
    if options.out and options.out.exists():
        parser.error(f"{options.out} exists; gates never overwrite what an earlier run found")
    if options.out and not os.access(options.out.parent, os.W_OK):
        parser.error(f"--out {options.out}: name a file in a folder that exists and may be written to")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        pairs = wanted(options.names, options.all, options.device)
        subjects = [subject_of(op, schedule, options.device) for op, schedule in pairs]
    except KernelError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, (UnknownOperator, UnknownSchedule)) else 1
    if told := unmatched(subjects, options.cases):
        print(f"--cases {options.cases}: {told}", file=sys.stderr)
        return 2
    with options.out.open("x") if options.out else nullcontext(sys.stdout) as out:
        sheet = Sheet(out)
        check_all(subjects, options, sheet)
        if "working-set" in options.gate:
            time_all(subjects, options, sheet)
    print("\n".join(sheet.table()), file=sys.stderr)
    if not sheet.counts:
        gates, of = ", ".join(options.gate), f" of problems with {options.cases!r}" if options.cases else ""
        named = ", ".join(options.names) or "any schedule"
        print(f"nothing was checked: on {options.device} {named} has no check{of} in {gates}", file=sys.stderr)
    return int(sheet.open_checks > 0 or not sheet.counts)


if __name__ == "__main__":
    sys.exit(main())

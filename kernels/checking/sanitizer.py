"""compute-sanitizer over problems of one operator's schedules, in a process of its own and under a time limit.

`memcheck` finds accesses outside allocations, `synccheck` barriers that not every thread reaches, `racecheck` shared
memory hazards. A tool that is missing, refuses the device, runs out of time or never reached a problem proves nothing:
those problems are *held* with the tool's own words, never passed. Schedules share a process, since starting one under
the tool takes longer than most checks; where one of them fails, those it may have taken with it run again alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.native.toolkit import CUDA_HOMES

TOOLS = ("memcheck", "synccheck", "racecheck")
# racecheck is slow: it looks at the two lengths where a split first spans several tiles.
RACE_LENGTHS = (1025, 3297)
BEGIN, END = "@ begin ", "@ end "
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
NO_REPORT = ("SANITIZER", "SUMMARY", "Target application", "didn't terminate successfully")
SECOND = "    and"  # begins the line of a race's other access
# torch's own kernels fill the operands; checking them costs minutes and says nothing about the schedule.
LEAVE_OUT = ("--kernel-name-exclude", "kernel_substring=at6native")


@dataclass(frozen=True)
class Verdict:
    """`passed`, `failed` or `held`, and why."""

    status: str
    message: str = ""


def find() -> str | None:
    """The compute-sanitizer of this machine."""
    homes = [f"{home}/{place}/compute-sanitizer" for home in CUDA_HOMES for place in ("bin", "compute-sanitizer")]
    return shutil.which("compute-sanitizer") or next((path for path in homes if Path(path).is_file()), None)


def reports(lines: Sequence[str]) -> list[str]:
    """What the tool reported in these lines: each report's accesses, without what it says about itself."""
    told: list[str] = []
    for line in (line.removeprefix("========= ").rstrip() for line in lines if line.startswith("========= ")):
        if line.startswith(SECOND) and told:
            told[-1] += line[len(SECOND) - len("and") - 1 :]
        elif line.strip() and line[0] != " " and not any(word in line for word in NO_REPORT):
            told.append(line)
    return told


def sections(output: str) -> dict[str, tuple[list[str], bool]]:
    """Of each problem the lines from its beginning to the next one's, and whether it ended."""
    found: dict[str, tuple[list[str], bool]] = {}
    current = ""
    for line in output.splitlines():
        if line.startswith(BEGIN):
            current = line.removeprefix(BEGIN)
            found[current] = ([], False)
        elif line.startswith(END):
            name = line.removeprefix(END)
            found[name] = (found[name][0], True)
        elif current:
            found[current][0].append(line)
    return found


def judge(returncode: int, output: str, names: Sequence[str]) -> dict[str, Verdict]:
    """What a finished run of a tool says about each `schedule case`. Without the tool's summary nothing passes."""
    last = " | ".join(line.strip() for line in output.splitlines()[-4:])
    summary = SUMMARY.search(output)
    if summary is None:
        held = Verdict("held", f"no summary from the tool, exit {returncode}: {last}")
        return dict.fromkeys(names, held)
    count, seen, verdicts = int(summary.group(1) or summary.group(2)), sections(output), {}
    for name in names:
        lines, ended = seen.get(name, ([], False))
        if told := reports(lines):
            verdicts[name] = Verdict("failed", f"{len(told)} reported; first: {told[0]}")
        elif not ended:
            verdicts[name] = Verdict("held", f"the problem did not finish, exit {returncode}: {last}")
        else:
            verdicts[name] = Verdict("passed")
    clean = all(verdict.status != "failed" for verdict in verdicts.values())
    if clean and (count or returncode):
        held = Verdict("held", f"exit {returncode} and {count} reported, of no known problem: {last}")
        return dict.fromkeys(names, held)
    return verdicts


def run_once(tool: str, operator: str, names: Sequence[str], limit_s: float) -> dict[str, Verdict]:
    """One process of a tool over `-m kernels.checking.sanitizer operator "schedule case" …`; a verdict for each."""
    path = find()
    if path is None:
        return dict.fromkeys(names, Verdict("held", "compute-sanitizer is not installed here"))
    inner = [sys.executable, "-m", "kernels.checking.sanitizer", operator, *names]
    command = [path, "--tool", tool, "--error-exitcode", "99", *LEAVE_OUT, *inner]
    # Without torch's cache every tensor is an allocation of its own, with an end the tool can see.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with tempfile.TemporaryFile("w+") as said:
        try:
            done = subprocess.run(
                command,
                cwd=Path(__file__).parents[2],
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            said.seek(0)
            done_in_time = [name for name, (_, ended) in sections(said.read()).items() if ended]
            told = f"{tool} did not finish within {limit_s:.0f} s, {len(done_in_time)} of {len(names)} problems seen"
            return dict.fromkeys(names, Verdict("held", told))
        said.seek(0)
        return judge(done.returncode, said.read(), names)


def check(tool: str, operator: str, names: Sequence[str], limit_s: float) -> dict[str, Verdict]:
    """A verdict for every `schedule case`, all in one process; schedules held beside a failure get one of their own."""
    begun = time.monotonic()
    found = run_once(tool, operator, names, limit_s)
    failed = {name.split()[0] for name, verdict in found.items() if verdict.status == "failed"}
    held = {name.split()[0] for name, verdict in found.items() if verdict.status == "held"} - failed
    for schedule in sorted(held) if failed else ():
        its = [name for name in names if name.split()[0] == schedule]
        left_s = limit_s - (time.monotonic() - begun)
        if left_s > 0:
            found.update(run_once(tool, operator, its, left_s))
    return found


def looks_at(tool: str, length: int | None) -> bool:
    return tool != "racecheck" or length in (None, *RACE_LENGTHS)


def main() -> int:
    """Inside the tool: each schedule on each problem, in every state that touches other places."""
    import torch

    from kernels.checking.cases import cases_of
    from kernels.operators import operator

    op = operator(sys.argv[1])
    cases = {case.id: case for case in cases_of(op, "cuda")}
    for name in sys.argv[2:]:
        schedule_name, _, case_id = name.partition(" ")
        print(f"{BEGIN}{name}", flush=True)
        trial = cases[case_id].make("cuda")
        for state in trial.places:
            trial.set_state(state)
            trial.launch(op.schedule(schedule_name))
            torch.cuda.synchronize()
        print(f"{END}{name}", flush=True)
        del trial
    return 0


if __name__ == "__main__":
    sys.exit(main())

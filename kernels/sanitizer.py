"""compute-sanitizer over the problems of one schedule, in a process of its own and under a time limit.

`memcheck` finds accesses outside allocations, `synccheck` barriers that not every thread reaches, `racecheck` shared
memory hazards. A tool that is missing, refuses the device, runs out of time or never reached a problem proves nothing:
those problems are *held* with the tool's own words, never passed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.toolkit import CUDA_HOMES

TOOLS = ("memcheck", "synccheck", "racecheck")
# racecheck is slow: it looks at the two lengths where a split first spans several tiles.
RACE_LENGTHS = (1025, 3297)
BEGIN, END = "@ begin ", "@ end "
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
NO_REPORT = ("SANITIZER", "SUMMARY", "Target application", "didn't terminate successfully")
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
    """What the tool reported in these lines: the first line of each report, without what it says about itself."""
    told = [line.removeprefix("========= ").rstrip() for line in lines if line.startswith("========= ")]
    return [line for line in told if line.strip() and line[0] != " " and not any(word in line for word in NO_REPORT)]


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


def judge(returncode: int, output: str, case_ids: Sequence[str]) -> dict[str, Verdict]:
    """What a finished run of a tool says about each problem. Without the tool's summary nothing passes."""
    last = " | ".join(line.strip() for line in output.splitlines()[-4:])
    summary = SUMMARY.search(output)
    if summary is None:
        held = Verdict("held", f"no summary from the tool, exit {returncode}: {last}")
        return dict.fromkeys(case_ids, held)
    count, seen, verdicts = int(summary.group(1) or summary.group(2)), sections(output), {}
    for case_id in case_ids:
        lines, ended = seen.get(case_id, ([], False))
        if told := reports(lines):
            verdicts[case_id] = Verdict("failed", f"{len(told)} reported; first: {told[0]}")
        elif not ended:
            verdicts[case_id] = Verdict("held", f"the problem did not finish, exit {returncode}: {last}")
        else:
            verdicts[case_id] = Verdict("passed")
    clean = all(verdict.status != "failed" for verdict in verdicts.values())
    if clean and (count or returncode):
        held = Verdict("held", f"exit {returncode} and {count} reported, of no known problem: {last}")
        return dict.fromkeys(case_ids, held)
    return verdicts


def check(tool: str, subject: str, case_ids: Sequence[str], limit_s: float) -> dict[str, Verdict]:
    """Run one tool once over `python -m kernels.sanitizer operator/schedule case …`; a verdict per problem."""
    path = find()
    if path is None:
        return dict.fromkeys(case_ids, Verdict("held", "compute-sanitizer is not installed here"))
    inner = [sys.executable, "-m", "kernels.sanitizer", subject, *case_ids]
    command = [path, "--tool", tool, "--error-exitcode", "99", *LEAVE_OUT, *inner]
    # Without torch's cache every tensor is an allocation of its own, with an end the tool can see.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with tempfile.TemporaryFile("w+") as said:
        try:
            done = subprocess.run(
                command,
                cwd=Path(__file__).parents[1],
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            late = Verdict("held", f"{tool} did not finish {len(case_ids)} problems within {limit_s:.0f} s")
            return dict.fromkeys(case_ids, late)
        said.seek(0)
        return judge(done.returncode, said.read(), case_ids)


def looks_at(tool: str, length: int | None) -> bool:
    return tool != "racecheck" or length in (None, *RACE_LENGTHS)


def main() -> int:
    """Inside the tool: every state of each problem, once."""
    import torch

    from kernels.cases import cases_of
    from kernels.operators import operator

    op_name, _, schedule_name = sys.argv[1].partition("/")
    op = operator(op_name)
    schedule, cases = op.schedule(schedule_name), {case.id: case for case in cases_of(op, "cuda")}
    for case_id in sys.argv[2:]:
        print(f"{BEGIN}{case_id}", flush=True)
        trial = cases[case_id].make("cuda")
        for state in trial.states:
            trial.set_state(state)
            trial.launch(schedule)
            torch.cuda.synchronize()
        print(f"{END}{case_id}", flush=True)
        del trial
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""compute-sanitizer over one problem of one schedule, in a process of its own and under a time limit.

`memcheck` finds accesses outside allocations, `synccheck` barriers that not every thread reaches, `racecheck` shared
memory hazards. A tool that is missing, refuses the device, runs out of time or never reached the kernel proves
nothing: the check is *held* with the tool's own words, never passed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernels.toolkit import CUDA_HOMES

TOOLS = ("memcheck", "synccheck", "racecheck")
RACE_LENGTHS = (1025, 3297)
REACHED = "the schedule ran under the tool"
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
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


def judge(returncode: int, output: str) -> Verdict:
    """What a finished run of a tool says."""
    last = " | ".join(line.strip() for line in output.splitlines()[-4:])
    found = SUMMARY.search(output)
    if found is None:
        return Verdict("held", f"no summary from the tool, exit {returncode}: {last}")
    count = int(found.group(1) or found.group(2))
    if count:
        kinds = [line.strip("= ").strip() for line in output.splitlines() if line.startswith("========= ")]
        return Verdict("failed", f"{count} reported; first: {next((k for k in kinds if k and 'COMPUTE' not in k), '')}")
    if REACHED not in output or returncode != 0:
        return Verdict("held", f"nothing reported, but the schedule did not finish, exit {returncode}: {last}")
    return Verdict("passed")


def check(tool: str, operator: str, schedule: str, case_id: str, limit_s: float) -> Verdict:
    """Run one tool over `python -m kernels.sanitizer operator/schedule case`."""
    path = find()
    if path is None:
        return Verdict("held", "compute-sanitizer is not installed here")
    inner = [sys.executable, "-m", "kernels.sanitizer", f"{operator}/{schedule}", case_id]
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
            return Verdict("held", f"{tool} did not finish within {limit_s:.0f} s")
        said.seek(0)
        return judge(done.returncode, said.read())


def tools_for(length: int | None) -> tuple[str, ...]:
    """racecheck is slow: it looks at the two lengths where a split first spans several tiles."""
    return TOOLS if length in (None, *RACE_LENGTHS) else TOOLS[:2]


def main() -> int:
    """Inside the tool: every state of one problem, once."""
    import torch

    from kernels.cases import cases_of
    from kernels.operators import operator

    name, case_id = sys.argv[1:3]
    op = operator(name.partition("/")[0])
    schedule = op.schedule(name.partition("/")[2])
    case = next(case for case in cases_of(op, "cuda") if case.id == case_id)
    trial = case.make("cuda")
    for state in trial.states:
        trial.set_state(state)
        trial.launch(schedule)
        torch.cuda.synchronize()
    print(REACHED, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

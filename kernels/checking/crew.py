"""Several processes of the gates at once: a worker per schedule for its checks, and calls that start processes.

A worker is `python -m kernels.gate operator/schedule` with the gates that do not time anything; what it wrote counts
even if it died, and its death or its being late is a held line of its own. Knows no check.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernels.checking.sheet import Line, Subject, line_of

CHECKS = ("contract", "hammer")
FINISHED = (0, 1)  # exit codes of a gate that came to its end


def command_of(subject: Subject, options: argparse.Namespace, out: Path) -> list[str]:
    gates = [argument for gate in CHECKS if gate in options.gate for argument in ("--gate", gate)]
    same = ("--device", options.device, "--cases", options.cases, "--launches", str(options.launches))
    return [sys.executable, "-m", "kernels.gate", subject.name, *gates, *same, "--out", str(out)]


def worked(subject: Subject, options: argparse.Namespace) -> list[Line]:
    """The lines of one worker, and a held one where it did not come to its end."""
    with tempfile.TemporaryDirectory() as folder:
        out, why = Path(folder) / "lines.jsonl", ""
        try:
            command = command_of(subject, options, out)
            root = Path(__file__).parents[2]
            done = subprocess.run(
                command, cwd=root, capture_output=True, text=True, timeout=options.limit_s, check=False
            )
            if done.returncode not in FINISHED:
                why = f"exit {done.returncode}: " + " | ".join(done.stderr.splitlines()[-2:])
        except subprocess.TimeoutExpired:
            why = f"not finished within {options.limit_s:.0f} s"
        written = out.read_text().splitlines() if out.is_file() else []
    lines = [Line(**json.loads(line)) for line in written]
    return [*lines, line_of(subject, CHECKS[0], "finishes", "", "held", why, {})] if why or not lines else lines


class Crew:
    """At most `jobs` at once; lines come in the order in which work was given."""

    def __init__(self, jobs: int) -> None:
        self.pool = ThreadPoolExecutor(jobs)
        self.given: list[Future[list[Line]]] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def take(self, call: Callable[..., list[Line]], *operands: Any) -> None:
        self.given.append(self.pool.submit(call, *operands))

    def check(self, subjects: Sequence[Subject], options: argparse.Namespace) -> None:
        if any(gate in options.gate for gate in CHECKS):
            for subject in subjects:
                self.take(worked, subject, options)

    def lines(self) -> Iterator[Line]:
        for future in self.given:
            yield from future.result()

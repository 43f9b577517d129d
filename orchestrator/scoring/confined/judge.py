"""The trusted process inside the walls: runs the tests of one set, one result line each.

It never runs the answer's code. Tests call into the candidate process and get plain values back, so patched builtins,
objects that equal everything and exits before the asserts meet nothing that they could change. A set is complete only
with the line {"done": true}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from orchestrator.scoring.confined.child import Ended, Interpreter
from orchestrator.scoring.confined.program import execute
from orchestrator.scoring.confined.remote import Broken, Candidate
from orchestrator.scoring.confined.stdout import same_output
from orchestrator.scoring.confined.values import own_classes

_PROGRAM = "from orchestrator.scoring.confined import program; program.main({fd})"
_TESTS = "tests"  # module name of the judge's own namespace


@dataclass(frozen=True)
class Bench:
    """Where results go and how long there is."""

    result_fd: int
    interpreter: Interpreter
    deadline: float
    output_bytes: int

    def report(self, status: str, detail: str = "") -> None:
        self.send({"status": status, "detail": detail[:500]})

    def send(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        while data:
            data = data[os.write(self.result_fd, data) :]


def main(job: Mapping[str, Any], result_fd: int) -> int:
    sys.path += job["paths"]  # tests may import what answers may import
    limits, program = job["limits"], job["program"]
    interpreter = Interpreter(job["python"], tuple(job["paths"]), limits["cpu_s"])
    bench = Bench(result_fd, interpreter, time.monotonic() + limits["wall_s"], limits["output_bytes"])
    if program["kind"] == "stdin":
        _run_stdin(bench, program, job["source"])
    else:
        _run_steps(bench, program, job["source"])
    bench.send({"done": True})
    return 0


def _run_stdin(bench: Bench, program: Mapping[str, Any], source: str) -> None:
    """A process for each test; a broken limit ends the set, for the next test would cost as much."""
    for number, test in enumerate(program["tests"]):
        ended = _one_program(bench, json.dumps([program["prelude"], source]), test["input"])
        bench.report(*_judge_output(ended, test["output"], program.get("relative_error", 0.0)))
        if ended.broke:
            for _ in program["tests"][number + 1 :]:
                bench.report("not-run")
            return


def _one_program(bench: Bench, texts: str, given: str) -> Ended:
    _empty_folder()
    with _memory_file(given) as stdin, _memory_file(texts) as code:
        entry, pipe = _PROGRAM.format(fd=code.fileno()), subprocess.PIPE
        running = bench.interpreter.start(entry, stdin=stdin, stdout=pipe, stderr=pipe, pass_fds=(code.fileno(),))
        patience_s = 5.0 * bench.interpreter.cpu_s + 10.0  # a busy host stretches wall time, not CPU time
        return running.watch(min(bench.deadline, time.monotonic() + patience_s), bench.output_bytes)


def _judge_output(ended: Ended, wanted: str, relative: float) -> tuple[str, str]:
    if ended.broke:
        return ended.broke, ended.error_tail
    if ended.code:
        return "error", f"exit code {ended.code}: {ended.error_tail[-300:]}"
    if same_output(ended.output.decode(errors="replace"), wanted, relative):
        return "passed", ""
    return "failed", f"printed {ended.output[:200]!r}"


def _memory_file(text: str) -> IO[bytes]:
    file = os.fdopen(os.memfd_create("text"), "w+b")
    file.write(text.encode())
    file.seek(0)
    return file


def _empty_folder() -> None:
    """Delete what the program before left, also in folders that it closed to itself."""
    with suppress(PermissionError):  # the work folder itself belongs to root where root made it
        Path().chmod(0o700)
    folders = [Path()]
    for folder in folders:
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                entry.chmod(0o700)
                folders.append(entry)
            else:
                entry.unlink()
    for folder in reversed(folders[1:]):
        folder.rmdir()


def _run_steps(bench: Bench, program: Mapping[str, Any], source: str) -> None:
    """One candidate process for the whole set; when it is gone, the steps that are left were not run."""
    names: dict[str, Any] = {"__name__": _TESTS}
    execute(program["prelude"], "prelude", names)
    with Candidate(bench.interpreter, bench.deadline, own_classes(names, _TESTS)) as candidate:
        started = _attempt(candidate, lambda: _bring_up(program, source, names, candidate))
        if started[0] != "passed":
            bench.report(*started)
            candidate.stop()
        for step in program["steps"][started[0] != "passed" :]:
            bench.report(*_run_step(step, names, candidate))


def _bring_up(program: Mapping[str, Any], source: str, names: dict[str, Any], candidate: Candidate) -> None:
    candidate.load(program["prelude"], source)
    names.update({name: candidate.bind(expression) for name, expression in program["bind"].items()})
    execute(program["setup"], "setup", names)


def _run_step(step: str, names: dict[str, Any], candidate: Candidate) -> tuple[str, str]:
    if candidate.stopped:
        return "not-run", ""
    return _attempt(candidate, lambda: execute(step, "test", names))


def _attempt(candidate: Candidate, act: Callable[[], None]) -> tuple[str, str]:
    try:
        act()
    except BaseException as error:  # tests may raise anything, SystemExit too
        return _verdict(error, candidate)
    return "passed", ""


def _verdict(error: BaseException, candidate: Candidate) -> tuple[str, str]:
    if isinstance(error, Broken):
        candidate.stop()
        return error.status, str(error)
    status = {"AssertionError": "failed", "MemoryError": "memory"}.get(type(error).__name__, "error")
    return status, f"{type(error).__name__}: {error}"

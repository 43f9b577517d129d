"""Scores texts in a process of its own, which is replaced whenever it takes too long or dies."""

from __future__ import annotations

import json
import resource
import select
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from threading import Lock
from typing import Self

from campaigns.corpora.case import Case
from campaigns.errors import WorldError
from campaigns.scorers.verdict import Answer, Judged, Verdict
from campaigns.scorers.worker import READY
from orchestrator.checkouts.places import ROOT
from orchestrator.hosts.process import die_with_parent

TIMEOUT_S = 20.0
START_S = 120.0  # importing sympy on a busy host
MEMORY_BYTES = 4 << 30


class ScorerProcess:
    """Context manager; an instance is a `TextScorer`, for one answer at a time whatever thread asks."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, case: Case, answer: Answer) -> Verdict:
        """Raises WorldError where no process can be started: that says nothing about answers."""
        with self._lock:
            process = self._process = self._process or self._start()
            _tell(process, json.dumps({"case": case.to_json(), "answer": asdict(answer)}))
            line = _hear(process, self.timeout_s)
            if line:
                told = json.loads(line)
                return Verdict(told["scorer"], Judged(told["outcome"]), told["details"])
            self._end()
        if line is None:
            return Verdict(case.dataset, Judged.TIMEOUT, {"reason": f"no verdict within {self.timeout_s:g} s"})
        return Verdict(case.dataset, Judged.ERROR, {"reason": "the process that scored it died"})

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "campaigns.scorers.worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=_confine,
        )
        if _hear(process, START_S) != READY:
            _kill(process)
            raise WorldError(
                f"the process that scores answers did not start within {START_S:g} s: see what "
                f"`{sys.executable} -m campaigns.scorers.worker` says in {ROOT}"
            )
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _kill(process)


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None, "started with a pipe"
    with suppress(BrokenPipeError):  # it has died, and says nothing
        process.stdin.write(line + "\n")
        process.stdin.flush()


def _hear(process: subprocess.Popen[str], timeout_s: float) -> str | None:
    """Its next line; empty where it has died, None where it takes too long."""
    assert process.stdout is not None, "started with a pipe"
    ready, _, _ = select.select([process.stdout], [], [], timeout_s)
    return process.stdout.readline().strip() if ready else None


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    with suppress(BrokenPipeError):
        process.communicate()


def _confine() -> None:
    die_with_parent()  # a worker that hangs reads no end of its input
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

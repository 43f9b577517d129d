"""Asks math-verify in a process of its own, which is replaced whenever it takes too long or dies."""

from __future__ import annotations

import json
import resource
import select
import subprocess
import sys
from pathlib import Path
from typing import Self

from campaigns.scorers.answer import Equal
from orchestrator.process import die_with_parent

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 20.0
START_S = 120.0  # importing sympy on a busy host
MEMORY_BYTES = 4 << 30


class EquivalenceWorker:
    """Context manager; an instance is an `Equivalence`."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, wanted: str, given: str) -> Equal:
        if self._process is None:
            self._process = self._start()
            if self._ask("1", "2", START_S) is not Equal.NO:  # warms sympy outside anybody's timeout
                self._end()
                return Equal.ERROR
        return self._ask(wanted, given, self.timeout_s)

    def _ask(self, wanted: str, given: str, timeout_s: float) -> Equal:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None, "started"
        try:
            process.stdin.write(json.dumps({"wanted": wanted, "given": given}) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], timeout_s)
            word = process.stdout.readline().strip() if ready else Equal.TIMEOUT
        except BrokenPipeError:
            word = ""
        if word in (Equal.YES, Equal.NO, Equal.ERROR):
            return Equal(word)
        self._end()
        return Equal.TIMEOUT if word else Equal.ERROR

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "campaigns.scorers.equivalence"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=_confine,
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _confine() -> None:
    die_with_parent()  # a worker that hangs reads no end of its input
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

"""Runs model-written code on drawn arguments in a child process with time, memory and file limits.

For evaluating our own checkpoints on our own exercises; the campaign's sandbox is another room and stricter.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from collections.abc import Sequence

from runtime.training.tasks.routines import Routine

_SECONDS = 5
_BYTES = 1 << 30
_TRIALS = 8

_FUNCTION = """
import json, sys
from typing import *
exec({code!r}, globals())
call = Solution().{method} if {is_method} else {name}
for arguments in json.load(sys.stdin):
    print(repr(call(*arguments)))
"""


def agrees(code: str, form: str, routine: Routine, method: str) -> bool:
    """True where every drawn input gives the routine's own result."""
    rng = random.Random(routine.name)
    drawn = [routine.arguments(rng) for _ in range(_TRIALS)]
    expected = [routine.function()(*arguments) for arguments in drawn]
    if form == "program":
        return all(_program(code, arguments) == str(result) for arguments, result in zip(drawn, expected, strict=True))
    driver = _FUNCTION.format(code=code, method=method, name=routine.name, is_method=form == "method")
    said = _run(driver, json.dumps(drawn))
    return said is not None and said.splitlines() == [repr(result) for result in expected]


def typed_in(arguments: Sequence[object]) -> str:
    """The arguments as lines of standard input."""
    return "\n".join(" ".join(map(str, value)) if isinstance(value, list) else str(value) for value in arguments)


def _program(code: str, arguments: tuple[object, ...]) -> str | None:
    said = _run(code, typed_in(arguments) + "\n")
    return None if said is None else said.strip()


def _run(code: str, standard_input: str) -> str | None:
    """Standard output, or None where the code failed or ran too long."""
    command = [sys.executable, "-I", "-c", code]
    try:
        done = subprocess.run(
            command, input=standard_input, capture_output=True, text=True, timeout=_SECONDS, preexec_fn=_limit, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

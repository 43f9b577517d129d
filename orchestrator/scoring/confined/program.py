"""The process that runs one program on standard input: its text comes through a descriptor, the rest is its own.

Nothing here is trusted. The judge reads what it prints and how it ends.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from contextlib import suppress
from typing import Any


def main(fd: int) -> None:
    """Run the prelude, then the program, as `__main__`. As in the official runner any SystemExit is a normal end."""
    with os.fdopen(fd, encoding="utf-8") as texts:
        prelude, source = json.load(texts)
    names = vars(sys.modules["__main__"])
    complete_builtins()
    execute(prelude, "prelude", names)
    with suppress(SystemExit):
        execute(source, "program", names)


def complete_builtins() -> None:
    """Programs end with `exit()`, which is the site module's gift; it is not loaded here."""
    vars(builtins).update(exit=sys.exit, quit=sys.exit)


def execute(text: str, name: str, namespace: dict[str, Any]) -> None:
    """Run a text as a module of its own: future statements of this package's files must not leak into it."""
    exec(compile(text, name, "exec", dont_inherit=True), namespace)

"""The process that runs an answer's code: loads it, then answers the judge's calls with plain values.

Nothing here is trusted: the code can change everything in this process. All that leaves it is what `values` can say.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any, BinaryIO

from orchestrator.scoring.confined.program import complete_builtins, execute
from orchestrator.scoring.confined.values import Codec, own_classes


def main() -> None:
    """Serve on the two descriptors that stand where standard input and output did."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    _Server(requests, replies).serve()


class _Server:
    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self._requests, self._replies = requests, replies
        self._lent: list[Any] = []
        self._shared: dict[str, type] = {}
        self._codec = Codec(self._shared, self._lend, lambda ref: self._lent[ref])
        self._module = types.ModuleType("solution")
        sys.modules["solution"] = self._module

    def serve(self) -> None:
        for line in self._requests:
            try:
                reply = {"value": self._codec.encode(self._do(**json.loads(line)))}
            except BaseException as error:  # SystemExit and KeyboardInterrupt are answers, too
                reply = {"error": [type(error).__name__, str(error)[:500]]}
            self._replies.write(json.dumps(reply).encode() + b"\n")
            self._replies.flush()

    def _lend(self, value: Any) -> int:
        self._lent.append(value)
        return len(self._lent) - 1

    def _do(self, op: str, target: Any = None, **rest: Any) -> Any:
        if op == "load":
            return self._load(rest["prelude"], rest["source"])
        if op == "bind":
            return self._lend(eval(rest["expression"], self._module.__dict__))
        subject = self._lent[target]
        args = [self._codec.decode(arg) for arg in rest.get("args", ())]
        if op == "call":
            return subject(*args, **{name: self._codec.decode(v) for name, v in rest["kwargs"].items()})
        return _OPERATIONS[op](subject, *args)

    def _load(self, prelude: str, source: str) -> None:
        namespace = self._module.__dict__
        complete_builtins()
        execute(prelude, "prelude", namespace)
        self._shared.update(own_classes(namespace, "solution"))
        execute(source, "solution", namespace)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "list": list,
    "len": len,
    "item": lambda subject, key: subject[key],
    "bool": bool,
}

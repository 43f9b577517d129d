"""The judge's end of the candidate process: calls go out, plain values come back.

Values that have no plain form stay there; the judge holds a Proxy, which equals only itself.
"""

from __future__ import annotations

import builtins
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

from orchestrator.scoring.confined.child import Interpreter
from orchestrator.scoring.confined.values import Codec

_ENTRY = "from orchestrator.scoring.confined import candidate; candidate.main()"
MAX_REPLY_BYTES = 256 << 20


class Broken(Exception):
    """The candidate process is no longer usable; `status` says how it ended."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class CandidateError(Exception):
    """An exception of the answer that has no counterpart among the builtin ones."""


class Candidate:
    """Context manager round the process. After `stop` every call raises Broken."""

    def __init__(self, interpreter: Interpreter, deadline: float, shared: Mapping[str, type]) -> None:
        self._codec = Codec(shared, self._own, self._proxy)
        self._deadline = deadline
        self._pending = bytearray()
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        self._program = interpreter.start(_ENTRY, stdin=requests, stdout=replies, stderr=subprocess.DEVNULL)
        os.close(requests)
        os.close(replies)
        self.stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._program.finish()
            os.close(self._requests)
            os.close(self._replies)

    def load(self, prelude: str, source: str) -> None:
        self._ask({"op": "load", "prelude": prelude, "source": source})

    def bind(self, expression: str) -> Proxy:
        return Proxy(self, int(self._ask({"op": "bind", "expression": expression})))

    def call(self, target: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        named = {name: self._codec.encode(value) for name, value in kwargs.items()}
        return self._ask({"op": "call", "target": target, "args": self._encode(args), "kwargs": named})

    def do(self, op: str, target: int, *args: Any) -> Any:
        return self._ask({"op": op, "target": target, "args": self._encode(args)})

    def _encode(self, args: tuple[Any, ...]) -> list[Any]:
        return [self._codec.encode(arg) for arg in args]

    def _own(self, value: Any) -> int:
        if isinstance(value, Proxy) and object.__getattribute__(value, "_candidate") is self:
            return int(object.__getattribute__(value, "_target"))
        raise TypeError(f"a test hands over a {type(value).__name__}, which cannot leave the judge")

    def _proxy(self, target: Any) -> Proxy:
        return Proxy(self, int(target))

    def _ask(self, request: Mapping[str, Any]) -> Any:
        if self.stopped:
            raise Broken("not-run", "the candidate process has ended")
        self._send(json.dumps(request).encode() + b"\n")
        try:
            reply = json.loads(self._line())
            if "error" in reply:
                name, message = reply["error"]
                raise _exception(str(name), str(message))
            return self._codec.decode(reply["value"])
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError, OverflowError) as error:
            if isinstance(error, _FromCandidate):
                raise
            raise Broken("error", f"the reply is no value ({type(error).__name__}: {error})") from error

    def _send(self, data: bytes) -> None:
        """Blocking writes with a deadline: a candidate that does not read must not hold the judge."""
        os.set_blocking(self._requests, False)
        while data:
            self._wait([], [self._requests])
            try:
                data = data[os.write(self._requests, data) :]
            except BrokenPipeError:
                raise self._ended() from None

    def _line(self) -> bytes:
        while b"\n" not in self._pending[-65536:]:
            self._wait([self._replies], [])
            chunk = os.read(self._replies, 65536)
            if not chunk:
                raise self._ended()
            self._pending += chunk
            if len(self._pending) > MAX_REPLY_BYTES:
                raise Broken("output-limit", f"a reply of more than {MAX_REPLY_BYTES} bytes")
        line, _, rest = bytes(self._pending).partition(b"\n")
        self._pending = bytearray(rest)
        return line

    def _wait(self, reading: list[int], writing: list[int]) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0 or select.select(reading, writing, [], left_s) == ([], [], []):
            raise Broken("timeout", "the wall clock of this set ran out")

    def _ended(self) -> Broken:
        ended = self._program.finish(time.monotonic() + 1.0)
        return Broken(ended.broke or "crashed", f"the process ended with code {ended.code} and no answer")


_ENDS_LOOPS = (StopIteration, StopAsyncIteration)  # raised below `all(map(...))` they would end it, and pass


class _FromCandidate(Exception):
    """Marks exceptions that the answer raised, whatever their class."""


def _exception(name: str, message: str) -> Exception:
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in _ENDS_LOOPS:
        with suppress(TypeError):  # UnicodeDecodeError and the like want more than a message
            marked: Exception = type(name, (_FromCandidate, kind), {})(message)
            return marked
    return CandidateError(f"{name}: {message}")


class Proxy:
    """Something that lives in the candidate process.

    Special attributes are not looked up there: with `__array_interface__` numpy would read the judge's own memory, at
    an address that the answer names.
    """

    __slots__ = ("_candidate", "_target")

    def __init__(self, candidate: Candidate, target: int) -> None:
        object.__setattr__(self, "_candidate", candidate)
        object.__setattr__(self, "_target", target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._candidate.call(self._target, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._candidate.do("get", self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._candidate.do("set", self._target, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._candidate.do("list", self._target))

    def __len__(self) -> int:
        return int(self._candidate.do("len", self._target))

    def __getitem__(self, key: Any) -> Any:
        return self._candidate.do("item", self._target, key)

    def __bool__(self) -> bool:
        return self._candidate.do("bool", self._target) is True

"""Values that cross between judge and candidate, as JSON that can build nothing but plain data.

A function of the answer returns into the judge only what this file can say: numbers, texts and containers, made anew
from the wire. An object that claims to equal everything arrives as a reference, and a reference equals only itself.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
from collections.abc import Callable, Mapping
from typing import Any

_SAFE_INT = 1 << 53
_SEQUENCES: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
    "range": lambda items: range(*items),
}
_TEXTS: dict[str, Callable[[str], Any]] = {
    "int": lambda text: int(text, 16),
    "complex": complex,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
}
# Exact classes only: a subclass may lie in every method, so of it only the data of its base is read.
_BASES = (bool, int, float, complex, str, bytes, bytearray, tuple, list, set, frozenset, dict, collections.deque)


class Unspeakable(TypeError):
    """The value has no form on the wire."""


class Codec:
    """`shared` are classes that both sides got from the same prelude; `lend` and `borrow` handle everything else."""

    def __init__(self, shared: Mapping[str, type], lend: Callable[[Any], Any], borrow: Callable[[Any], Any]) -> None:
        self.shared = shared
        self.lend = lend
        self.borrow = borrow

    def encode(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            return value if -_SAFE_INT < value < _SAFE_INT else {"int": hex(value)}
        if kind is list:
            return [self.encode(item) for item in value]
        if kind is dict:
            return {"dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if kind in (tuple, set, frozenset, collections.deque):
            return {kind.__name__: [self.encode(item) for item in value]}
        return self._encode_rare(kind, value)

    def _encode_rare(self, kind: type, value: Any) -> Any:
        if kind is range:
            return {"range": [value.start, value.stop, value.step]}
        if kind is complex:
            return {"complex": repr(value)}
        if kind in (bytes, bytearray):
            return {kind.__name__: value.hex()}
        if kind in (decimal.Decimal, fractions.Fraction):
            return {kind.__name__: str(value)}
        if kind in (datetime.datetime, datetime.date, datetime.time):
            return {kind.__name__: value.isoformat()}
        if self.shared.get(kind.__name__) is kind:
            return {"object": [kind.__name__, [[k, self.encode(v)] for k, v in vars(value).items()]]}
        if kind.__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "ndim", 1):
            return self.encode(value.item())
        for base in _BASES:
            if isinstance(value, base):
                return self.encode(_plain(base, value))
        return {"ref": self.lend(value)}

    def decode(self, wire: Any) -> Any:
        if isinstance(wire, list):
            return [self.decode(item) for item in wire]
        if not isinstance(wire, dict):
            return wire
        ((tag, content),) = wire.items()
        if tag == "dict":
            return {self.decode(key): self.decode(value) for key, value in content}
        if tag in _SEQUENCES:
            return _SEQUENCES[tag](self.decode(content))
        if tag in _TEXTS:
            return _TEXTS[tag](content)
        if tag == "object":
            return self._decode_object(*content)
        if tag == "ref":
            return self.borrow(content)
        raise ValueError(f"unknown tag {tag!r}")

    def _decode_object(self, name: str, attributes: Any) -> Any:
        value: Any = object.__new__(self.shared[name])
        for key, item in attributes:
            object.__setattr__(value, key, self.decode(item))
        return value


def _plain(base: Any, value: Any) -> Any:
    """The data of a subclass instance, read with the methods of its base."""
    if base is dict:
        return dict(dict.items(value))
    if base in (int, float, str):
        return {int: int.__int__, float: float.__float__, str: str.__str__}[base](value)
    if base in (bytes, bytearray, complex):
        return base(value)
    return base(base.__iter__(value))


def own_classes(namespace: dict[str, Any], module: str) -> dict[str, type]:
    """Classes that the executed text itself defined."""
    return {
        name: value
        for name, value in namespace.items()
        if isinstance(value, type) and value.__module__ == module and value.__name__ == name
    }

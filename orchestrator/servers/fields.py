"""The typed boundary: whatever a server says is right, absent, or `Malformed` with the field and its value. Pure.

Absent are a missing field and null. Nothing is converted: a count that comes as text or as a float is no count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

MOST_TOKENS = 2**31 - 1
MOST_NS = 2**53 - 1  # what a float64 still holds exactly: a hundred days
MOST_PER_ROUND = 2**16 - 1
_MOST_ID = 2**32 - 1  # ids are hashed and stored as uint32
_QUOTED_CHARS = 80

Object = Mapping[str, Any]
_T = TypeVar("_T")


class Malformed(Exception):
    """The message names the field, what it holds, and what it should."""


def parse_object(text: str, what: str) -> Object:
    """JSON of RFC 8259: no NaN, no Infinity."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Malformed(f"{what} is not JSON: {text[:_QUOTED_CHARS]!r}") from None
    if not isinstance(value, dict):
        raise _wrong(what, value, "an object")
    return value


def text(owner: Object, name: str) -> str | None:
    value = owner.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(name, value, "text")
    return value


def whole_text(value: str) -> str:
    """With the UTF-16 halves of a character that came apart put together again, and `\ufffd` for a half alone.

    JSON can escape half a character, which no file and no database can hold.
    """
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole(owner: Object, name: str, most: int) -> int | None:
    """From 0 to `most`."""
    value = owner.get(name)
    return None if value is None else _whole(name, value, most)


def mapping(owner: Object, name: str) -> Object | None:
    value = owner.get(name)
    if value is not None and not isinstance(value, dict):
        raise _wrong(name, value, "an object")
    return value


def mappings(owner: Object, name: str) -> tuple[Object, ...] | None:
    value = _list(owner, name)
    for index, item in enumerate(value or ()):
        if not isinstance(item, dict):
            raise _wrong(f"{name}[{index}]", item, "an object")
    return None if value is None else tuple(value)


def ids(owner: Object, name: str) -> tuple[int, ...] | None:
    value = _list(owner, name)
    return None if value is None else tuple(_whole(f"{name}[{i}]", item, _MOST_ID) for i, item in enumerate(value))


def word(owner: Object, name: str, words: tuple[str, ...]) -> str | None:
    value = owner.get(name)
    if value is not None and value not in words:
        raise _wrong(name, value, f"one of {', '.join(words)}")
    return value


def required(value: _T | None, name: str) -> _T:
    """`value`, which may not be absent."""
    if value is None:
        raise _wrong(name, value, "there")
    return value


def _list(owner: Object, name: str) -> list[Any] | None:
    value = owner.get(name)
    if value is not None and not isinstance(value, list):
        raise _wrong(name, value, "a list")
    return value


def _whole(name: str, value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:  # a bool is an int, and no count
        raise _wrong(name, value, f"a whole number from 0 to {most}")
    return value


def _wrong(name: str, value: Any, wanted: str) -> Malformed:
    shown = "null" if value is None else repr(value)
    return Malformed(f"{name} is {shown[:_QUOTED_CHARS]}, which is not {wanted}")


def _refuse(constant: str) -> Any:
    raise ValueError(constant)

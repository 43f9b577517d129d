"""Facts to rows and back: the one place that knows both the frozen records and the columns.

A record's fields become columns of the same name; a `PairKey` becomes four columns, enums their values, tuples,
mappings and nested records JSON text. Decoding follows the type hints of the record.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
import zlib
from array import array
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import numpy as np

from campaigns.plan import PairKey
from campaigns.records import Request
from results.store.hashing import canonical_json

T = TypeVar("T")
Make = Callable[[Any], Any]  # a field's value of what stands for it
_NUMBERS = (int, float, bool)
_MOST_IDS_BYTES = 1 << 26  # sixteen million tokens
_SPREAD_KEY = ("startup", "fixture", "seed", "repeat")


def encode(fact: Any, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The columns of a fact; `row_sha256` is added where the row is complete."""
    row: dict[str, Any] = {}
    for name, kind in _hints(type(fact)).items():  # type: ignore[arg-type]  # a class can be hashed
        if name in without:
            continue
        value = getattr(fact, name)
        if kind is PairKey:
            row |= {column: getattr(value, column) for column in _SPREAD_KEY}
        else:
            row[name] = _column(value)
    return row


def decode(kind: type[T], row: Mapping[Any, Any], **given: Any) -> T:
    """The fact that was encoded as `row`; `given` fills fields that live elsewhere."""
    values = dict(given)
    for name, make in _of_columns(kind).items():  # type: ignore[arg-type]  # a class can be hashed
        if name in given:
            continue
        if make is PairKey:
            values[name] = PairKey(*(row[column] for column in _SPREAD_KEY))
        else:
            column = row[name]
            values[name] = column if make is None or column is None else make(column)
    return kind(**values)


def operator_times(request: Request) -> list[dict[str, Any]]:
    """The rows of a request's profile, each with the request's natural key."""
    profile = request.profile
    if profile is None:
        return []
    key = {column: getattr(request.key, column) for column in _SPREAD_KEY}
    key |= {"campaign_id": request.campaign_id, "block_attempt": request.block_attempt, "role": request.role.value}
    shared = encode(profile, without=frozenset({"times"}))
    return [key | shared | encode(time) for time in profile.times]


def pack_ids(ids: tuple[int, ...] | None) -> bytes | None:
    """zlib without its search for repetitions, which finds few among ids and takes a third of the time."""
    if ids is None:
        return None
    packer = zlib.compressobj(1, strategy=zlib.Z_HUFFMAN_ONLY)
    return packer.compress(np.array(array("I", ids), dtype="<u4").tobytes()) + packer.flush()


def unpack_ids(packed: bytes | None) -> tuple[int, ...] | None:
    """ValueError for what is not packed ids, or too many of them: a few bytes may unpack to gigabytes."""
    if packed is None:
        return None
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, _MOST_IDS_BYTES)
    except zlib.error as error:
        raise ValueError(f"token ids cannot be unpacked ({error})") from error
    if not unpacker.eof:
        raise ValueError(f"token ids are cut off, or more than {_MOST_IDS_BYTES // 4}")
    return tuple(np.frombuffer(data, dtype="<u4").tolist())


def to_plain(value: Any) -> Any:
    """A value made of JSON's own types; records become mappings."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list | tuple | frozenset) else value


def from_plain(hint: Any, value: Any) -> Any:
    """The inverse of `to_plain` for the types that records use."""
    make = _of_plain(hint)
    return value if make is None or value is None else make(value)


@cache  # of types, which are few; a store has millions of values
def _of_plain(hint: Any) -> Make | None:
    """What makes a value of JSON's own types one of `hint`; None where it is one as it stands."""
    kind = _required(hint)
    if typing.get_origin(kind) is tuple:
        return lambda value: _tuple(typing.get_args(kind), value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return lambda value: _record(kind, value)
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else None


def _record(kind: Any, value: Mapping[str, Any]) -> Any:
    """Older rows lack newer fields."""
    return kind(**{name: from_plain(hint, value[name]) for name, hint in _hints(kind).items() if name in value})


def _tuple(kinds: tuple[Any, ...], value: list[Any]) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is ...:
        make = _of_plain(kinds[0])
        return tuple(value) if make is None else tuple(from_plain(kinds[0], item) for item in value)
    return tuple(from_plain(kind, item) for kind, item in zip(kinds, value, strict=True))


def _column(value: Any) -> Any:
    if value is None or type(value) in _NUMBERS:
        return value
    if isinstance(value, str):
        return _text(value.value if isinstance(value, Enum) else value)
    if isinstance(value, Enum):
        return value.value
    is_json = isinstance(value, Mapping | tuple) or dataclasses.is_dataclass(value)
    return _text(canonical_json(to_plain(value))) if is_json else value


@cache
def _of_columns(kind: Any) -> dict[str, Any]:
    """Field -> what makes its value: a `Make` of its column, None where that is it, PairKey of four columns."""
    return {name: PairKey if hint is PairKey else _of_column(_required(hint)) for name, hint in _hints(kind).items()}


def _of_column(kind: Any) -> Make | None:
    if kind is bool:
        return bool
    origin = typing.get_origin(kind) or kind
    is_json = isinstance(origin, type) and (issubclass(origin, Mapping | tuple) or dataclasses.is_dataclass(origin))
    return (lambda column: from_plain(kind, json.loads(column))) if is_json else _of_plain(kind)


def _text(value: str) -> str:
    """A lone surrogate from a broken stream has no UTF-8 form: it is kept as its escape."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _required(hint: Any) -> Any:
    """`X` of `X | None`."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}

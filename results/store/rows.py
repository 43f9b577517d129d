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
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from campaigns.plan import PairKey
from campaigns.records import Request
from results.store.hashing import canonical_json

T = TypeVar("T")
_HINTS: dict[Any, dict[str, Any]] = {}
_NUMBERS = (int, float, bool)
_MOST_IDS_BYTES = 1 << 26  # sixteen million tokens
_SPREAD_KEY = ("startup", "fixture", "seed", "repeat")


def encode(fact: Any, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The columns of a fact; `row_sha256` is added where the row is complete."""
    row: dict[str, Any] = {}
    for name, kind in _hints(type(fact)).items():
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
    for name, hint in _hints(kind).items():
        if name in given:
            continue
        if hint is PairKey:
            values[name] = PairKey(*(row[column] for column in _SPREAD_KEY))
        else:
            values[name] = _value(hint, row[name])
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
    hint = _required(hint)
    if value is None or hint is Any:
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        known = {name: kind for name, kind in _hints(hint).items() if name in value}  # older rows lack newer fields
        return hint(**{name: from_plain(kind, value[name]) for name, kind in known.items()})
    if typing.get_origin(hint) is tuple:
        return tuple(from_plain(kind, item) for kind, item in zip(_element_hints(hint, value), value, strict=True))
    return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else value


def _column(value: Any) -> Any:
    if value is None or type(value) in _NUMBERS:
        return value
    if isinstance(value, str):
        return _text(value.value if isinstance(value, Enum) else value)
    if isinstance(value, Enum):
        return value.value
    is_json = isinstance(value, Mapping | tuple) or dataclasses.is_dataclass(value)
    return _text(canonical_json(to_plain(value))) if is_json else value


def _value(hint: Any, column: Any) -> Any:
    kind = _required(hint)
    if kind is bool and column is not None:
        return bool(column)
    origin = typing.get_origin(kind) or kind
    is_json = isinstance(origin, type) and (issubclass(origin, Mapping | tuple) or dataclasses.is_dataclass(origin))
    return from_plain(kind, json.loads(column) if is_json and column is not None else column)


def _text(value: str) -> str:
    """A lone surrogate from a broken stream has no UTF-8 form: it is kept as its escape."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _required(hint: Any) -> Any:
    """`X` of `X | None`."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint


def _element_hints(hint: Any, value: list[Any]) -> list[Any]:
    kinds = typing.get_args(hint)
    return [kinds[0]] * len(value) if len(kinds) == 2 and kinds[1] is ... else list(kinds)


def _hints(kind: Any) -> dict[str, Any]:
    if kind not in _HINTS:
        hints = typing.get_type_hints(kind)
        _HINTS[kind] = {f.name: hints[f.name] for f in dataclasses.fields(kind)}
    return _HINTS[kind]

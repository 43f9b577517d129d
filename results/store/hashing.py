"""Hashes of what is stored: one over every row, one over the rounds of a request. Knows nothing of SQL.

A row's hash is the SHA-256 of its canonical JSON: keys sorted, no spaces, UTF-8; without `id`, `row_sha256` and every
null column, so that a later revision may add nullable columns; bytes stand as the hex of their own SHA-256. The rounds'
hash is the SHA-256 of a version byte and, per round, the integers of the `round` table from `round_index` on as
little-endian int64, null as -1; version 1 ends before `wake_ns`, and is that of rounds that have none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FIRST_COLUMNS = 14  # of version 1
_NOT_HASHED = frozenset({"id", "row_sha256", "request_id"})
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    return _ENCODER.encode(value)


def row_sha256(row: Mapping[str, Any]) -> str:
    """`row` as the database returns it; booleans count as 0 and 1."""
    content = {name: _plain(value) for name, value in row.items() if name not in _NOT_HASHED and value is not None}
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def holds(row: Mapping[Any, Any]) -> bool:
    """Whether a row gives the hash that it carries; one with a figure that JSON has no form for gives none."""
    try:
        return bool(row_sha256(row) == row["row_sha256"])
    except ValueError:
        return False


def rounds_sha256(matrix: NDArray[np.float64]) -> str:
    """`matrix` is (rounds, integers of the round table from round_index on), NaN where null."""
    later = not np.isnan(matrix[:, _FIRST_COLUMNS:]).all()
    filled = matrix.copy() if later else matrix[:, :_FIRST_COLUMNS].copy()
    filled[np.isnan(filled)] = -1
    return hashlib.sha256((b"\x02" if later else b"\x01") + filled.astype("<i8").tobytes()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    return int(value) if isinstance(value, bool) else value

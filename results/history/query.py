"""Plain SQL over the store: reading only, within limits of rows and time. The views are in docs/history.md.

The connection is read-only, and an authoriser refuses everything but reading: no ATTACH, no PRAGMA, no extension.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from campaigns.errors import UsageError
from results.store.reader import Reader

_STEPS = 10_000  # of SQLite's virtual machine between two looks at the clock
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


@dataclass(frozen=True)
class Answer:
    header: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    truncated: bool  # more rows than the limit


def query(reader: Reader, sql: str, *, max_rows: int = 1000, max_s: float = 10.0) -> Answer:
    """UsageError for anything but one reading statement, and when the time is up."""
    connection = reader.connection.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection), connection
    deadline = time.monotonic() + max_s
    connection.set_authorizer(_authorise)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        cursor = connection.execute(sql)
        rows = cursor.fetchmany(max_rows + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise UsageError(_sentence(str(error), max_s)) from error
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    if cursor.description is None:
        raise UsageError("the query answers nothing: write one SELECT")
    header = tuple(column[0] for column in cursor.description)
    return Answer(header, rows[:max_rows], len(rows) > max_rows)


def _authorise(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _sentence(complaint: str, max_s: float) -> str:
    if "interrupted" in complaint:
        return f"the query was stopped after {max_s:g} s: narrow it, or raise --max-s"
    if "not authorized" in complaint or "prohibited" in complaint:
        return "the query may only read: write one SELECT"
    return f"the query is not understood ({complaint}); views: v_round v_request v_pair v_startup v_effect"

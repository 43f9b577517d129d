"""Plain SQL over the store: reading only, within limits of rows and time. The views are in docs/history.md.

The connection is read-only, and an authoriser refuses everything but reading: no ATTACH, no PRAGMA, no extension.
"""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaigns.errors import UsageError
from results.history.meanings import CAMPAIGN_COLUMNS, CAMPAIGNS, meant
from results.store.reader import Reader

_BESIDE_READING = ("one statement at a time", "not authorized")
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
    if re.search(rf"\b{CAMPAIGNS}\b", sql, re.IGNORECASE):
        _add_campaigns(reader, connection)
    connection.execute("SELECT * FROM json_each('[]'), json_tree('[]')")  # made now: making them is more than reading
    deadline = time.monotonic() + max_s
    refused: list[int] = []  # what the statement would do beside reading; SQLite's own words for that differ

    def authorise(action: int, *_: object) -> int:
        if action not in _ALLOWED:
            refused.append(action)
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    connection.set_authorizer(authorise)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        cursor = connection.execute(sql)
        rows = cursor.fetchmany(max_rows + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        _free(connection)
        if "malformed" in str(error):
            raise  # the file, and not the question
        if refused or any(words in str(error) for words in _BESIDE_READING):
            raise UsageError("the query may only read: write one SELECT") from error
        raise UsageError(_sentence(str(error), max_s, meant(reader.connection, sql, str(error)))) from error
    finally:
        _free(connection)
    if cursor.description is None:
        raise UsageError("the query answers nothing: write one SELECT")
    header = tuple(column[0] for column in cursor.description)
    return Answer(header, rows[:max_rows], len(rows) > max_rows)


def _free(connection: sqlite3.Connection) -> None:
    connection.set_authorizer(None)
    connection.set_progress_handler(None, 0)


def _add_campaigns(reader: Reader, connection: sqlite3.Connection) -> None:
    """v_campaign: a row per campaign and fixture, judged as `campaign history` judges; no SQL could.

    A temporary table of this connection: the store itself is only read.
    """
    from results.history.entries import Filter, history  # pandas and the statistics, for questions that name the view

    rows = [_campaign_row(reader, row) for row in history(reader, Filter(archived=True)).to_dict("records")]
    columns = ", ".join(CAMPAIGN_COLUMNS)
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {CAMPAIGNS} ({columns})")
    connection.execute(f"DELETE FROM {CAMPAIGNS}")
    marks = ", ".join("?" * len(CAMPAIGN_COLUMNS))
    connection.executemany(f"INSERT INTO {CAMPAIGNS} VALUES ({marks})", rows)


def _campaign_row(reader: Reader, row: Mapping[Any, Any]) -> list[Any]:
    campaign_id = str(row["campaign_id"])
    provenance = reader.campaign(campaign_id).provenance
    more = {
        "fixture_id": row["fixture"],
        "status": reader.status(campaign_id).value,
        "host": (provenance.get("host") or {}).get("name"),
        "git_commit": (provenance.get("git") or {}).get("git_commit"),
    }
    values = (more.get(name, row.get(name)) for name in CAMPAIGN_COLUMNS)
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def _sentence(complaint: str, max_s: float, more: str) -> str:
    if "interrupted" in complaint:
        return f"the query was stopped after {max_s:g} s: narrow it, or raise --max-s"
    return f"the query is not understood ({complaint}{more}); campaign query --schema lists tables, views and columns"

"""Whether the rows that figures rest on are as they were recorded: asked by everything that judges campaigns.

By their hashes, 30 us a request; `verify` recomputes more (every round, sample and score) and names each row.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from campaigns.judging.verdicts import counted
from results.store import schema
from results.store.hashing import holds
from results.store.reader import Reader

_TABLES = (
    schema.campaign,
    schema.startup,
    schema.startup_end,
    schema.request,
    schema.pair,
    schema.failure,
    schema.look,
    schema.score,
)
_AT_ONCE = 500  # of SQLite's variables in one question
_SUMMARIES = """
SELECT r.campaign_id AS owner, s.* FROM main.request r LEFT JOIN main.request_summary s ON s.request_id = r.id
WHERE r.campaign_id IN ({})
"""
_ALONE = """
SELECT p.campaign_id, count(*) AS n FROM main.pair p WHERE p.campaign_id IN ({}) AND 2 > (
    SELECT count(DISTINCT r.role) FROM main.request r WHERE r.campaign_id = p.campaign_id AND r.startup = p.startup
        AND r.fixture = p.fixture AND r.seed = p.seed AND r.repeat = p.repeat
        AND r.block_attempt = p.block_attempt AND r.phase = 'measure')
GROUP BY p.campaign_id
"""


def changed(connection: Connection, campaigns: Collection[str]) -> dict[str, str]:
    """What is wrong with the rows of those of the campaigns that somebody changed."""
    found: dict[str, list[str]] = {}
    names = list(campaigns)
    for i in range(0, len(names), _AT_ONCE):
        for campaign_id, told in _faults(connection, names[i : i + _AT_ONCE]):
            found.setdefault(campaign_id, []).append(told)
    return {campaign_id: ", ".join(told) for campaign_id, told in found.items()}


def set_changed_aside(reader: Reader, campaigns: Collection[str]) -> None:
    """What somebody wrote over is nobody's measurement: the campaigns are as if they were not there, and told."""
    for campaign_id, why in changed(reader.connection, campaigns).items():
        reader.damaged.add(campaign_id, why)


def require_unchanged(reader: Reader, campaign_id: str) -> None:
    """IdentityMismatch, for whoever sets a campaign beside others, plans by it, or hands it on."""
    set_changed_aside(reader, [campaign_id])
    reader.resolve(campaign_id)


def _faults(connection: Connection, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    marks = ", ".join("?" * len(names))
    for table in _TABLES:
        rows = _rows(connection, f"SELECT * FROM main.{table.name} WHERE campaign_id IN ({marks})", names)
        lost = Counter(str(row["campaign_id"]) for row in rows if not holds(row))
        yield from _told(lost, f"{table.name} row", "changed since recorded")
    summaries = _rows(connection, _SUMMARIES.format(marks), names)
    lost = Counter(str(row.pop("owner")) for row in summaries if not holds({**row, "owner": None}))
    yield from _told(lost, "request_summary row", "changed since recorded")
    alone = {row["campaign_id"]: row["n"] for row in _rows(connection, _ALONE.format(marks), names)}
    yield from _told(alone, "pair", "without its requests")


def _told(counts: Mapping[str, int], noun: str, what: str) -> Iterator[tuple[str, str]]:
    yield from ((campaign_id, f"{counted(n, noun)} {what}") for campaign_id, n in counts.items())


def _rows(connection: Connection, query: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """As the database has them: a hash is over what is stored, and text that is none gives none."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection), driver
    before, driver.text_factory = driver.text_factory, _text
    try:
        cursor = driver.execute(query, names)
        header = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(header, row, strict=True))
    finally:
        driver.text_factory = before


def _text(stored: bytes) -> str:
    return stored.decode(errors="surrogateescape")

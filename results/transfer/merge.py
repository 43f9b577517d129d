"""Another store's facts, appended to this one. Nothing is overwritten: what contradicts is named and left out.

Rows are the same when their hashes are; surrogate ids are made anew. A campaign with a contradiction, or with a row
that does not hold, is not imported at all: it is verified, and summarised once, before the first insert. The other
store is only read, as a copy (results.transfer.foreign); this one is locked while rows are inserted, not before.

Pinned prompts stay behind: they guard this store's own runs, and another's word about them could end those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, insert, select, text
from sqlalchemy.exc import IntegrityError

from campaigns.judging.verdicts import counted
from results.reading.summary import summarise
from results.store import schema
from results.store.hashing import row_sha256
from results.store.reader import ADDED, Reader
from results.store.rounds import COLUMNS
from results.store.verify import Tally, row_findings, verify
from results.store.writer import Store, utc_now

_TIED = (schema.request_summary, schema.round_)  # follow their request
_OWN = (schema.campaign, schema.request, schema.imported, *_TIED)
_PER_CAMPAIGN = tuple(t for t in schema.metadata.sorted_tables if "campaign_id" in t.c and t not in _OWN)
_FREE = (schema.probe, schema.decision)
_FREE_NAME = "probes and decisions"
_ROUNDS = text(f"SELECT {', '.join(COLUMNS)} FROM round WHERE request_id = :request ORDER BY round_index")


@dataclass(frozen=True)
class Outcome:
    """What became of one campaign, or of the facts that belong to none."""

    name: str
    n_new: int
    conflict: str = ""


def merge(store: Store, other: Reader, source: Path) -> list[Outcome]:
    """`source` is where the other store came from, as it is kept beside what was imported."""
    damaged = [Outcome(name, 0, f"its row of table campaign: {why}") for name, why in other.damaged.items()]
    outcomes = [_campaign(store, other, campaign.campaign_id, source) for campaign in other.campaigns()]
    return [*damaged, *outcomes, _free(store, other)]


def _fault(other: Reader, campaign_id: str) -> str:
    """The first row that does not hold; also what keeps a report from being made of rows that do."""
    finding = next(verify(other, campaign_id, Tally()), None)
    if finding is not None:
        return f"{finding.row}: {finding.what}"
    with other.damaged.sparing(campaign_id):
        summarise(other, campaign_id)
    return other.damaged.get(campaign_id, "")


def _campaign(store: Store, other: Reader, campaign_id: str, source: Path) -> Outcome:
    if fault := _fault(other, campaign_id):
        return Outcome(campaign_id, 0, fault)
    try:
        with store.transaction() as connection:
            is_new = _copy(connection, other, schema.campaign, campaign_id)
            n_new = is_new + sum(_copy(connection, other, table, campaign_id) for table in _PER_CAMPAIGN)
            n_new += _copy_requests(connection, other, campaign_id)
            if n_new:
                told = f"{'' if is_new else ADDED}{source}"
                row = {"utc": utc_now(), "source": told, "campaign_id": campaign_id}
                connection.execute(insert(schema.imported).values(**row, row_sha256=row_sha256(row)))
    except IntegrityError as error:
        return Outcome(campaign_id, 0, f"this store holds another {_table_of(error)} under the same key ({error.orig})")
    return Outcome(campaign_id, n_new)


def _free(store: Store, other: Reader) -> Outcome:
    for table in _FREE:
        for row in other.connection.execute(text(f"SELECT * FROM {table.name}")).mappings():
            if finding := next(row_findings(table, row), None):
                return Outcome(_FREE_NAME, 0, f"{finding.row}: {finding.what}")
    try:
        with store.transaction() as connection:
            return Outcome(_FREE_NAME, sum(_copy(connection, other, table, None) for table in _FREE))
    except IntegrityError as error:
        return Outcome(_FREE_NAME, 0, f"this store holds another {_table_of(error)} ({error.orig})")


def _copy(connection: Connection, other: Reader, table: Table, campaign_id: str | None) -> int:
    new = _new_rows(connection, other, table, campaign_id)
    if new:
        connection.execute(insert(table), [{k: v for k, v in row.items() if k != "id"} for row in new])
    return len(new)


def _copy_requests(connection: Connection, other: Reader, campaign_id: str) -> int:
    """Each with its summary and its rounds, under an id of this store."""
    new = _new_rows(connection, other, schema.request, campaign_id)
    insert_round = (
        f"INSERT INTO round (request_id, {', '.join(COLUMNS)}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"
    )
    for row in new:
        old_id = row.pop("id")
        request_id = connection.execute(insert(schema.request).values(**row)).lastrowid
        summary = select(schema.request_summary).where(schema.request_summary.c.request_id == old_id)
        found = dict(other.connection.execute(summary).mappings().one())
        connection.execute(insert(schema.request_summary).values(**{**found, "request_id": request_id}))
        rounds = other.connection.execute(_ROUNDS, {"request": old_id})
        cursor = connection.connection.cursor()
        cursor.executemany(insert_round, [(request_id, *values) for values in rounds])
        cursor.close()
    return len(new)


def _new_rows(connection: Connection, other: Reader, table: Table, campaign_id: str | None) -> list[dict[str, Any]]:
    """The other store's rows whose hash this one lacks, in their order."""
    hashes, rows = select(table.c.row_sha256), select(table)
    if campaign_id is not None:
        hashes = hashes.where(table.c.campaign_id == campaign_id)
        rows = rows.where(table.c.campaign_id == campaign_id)
    known = set(connection.scalars(hashes))
    return [dict(row) for row in other.connection.execute(rows).mappings() if row["row_sha256"] not in known]


def _table_of(error: IntegrityError) -> str:
    complaint = str(error.orig)
    return complaint.rsplit(": ", 1)[-1].split(".", 1)[0] if ": " in complaint else "row"


def lines(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{o.name}: {'not imported, ' + o.conflict if o.conflict else counted(o.n_new, 'row') + ' appended'}"
        for o in outcomes
    ]

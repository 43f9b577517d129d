"""Recomputes every hash and every summary of a campaign from its rows, and names each row that does not hold.

Knows what must follow from what: a row's hash from its columns, a request's rounds hash and summary from its rounds,
the token hash from the ids, a pair from its two requests. Writes nothing and repairs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import RowMapping, Table, select, text

from campaigns.hashes import token_sha256
from campaigns.judging.compare import compare
from campaigns.plan import Role
from campaigns.records import Pair, Request
from results.store import schema
from results.store.hashing import rounds_sha256, row_sha256
from results.store.reader import Reader
from results.store.rounds import COLUMNS, same_summary, summarise, to_matrix
from results.store.rows import decode, unpack_ids

_ROUNDS = f"SELECT {', '.join(COLUMNS)} FROM round WHERE request_id = ? ORDER BY round_index"
_KEY_COLUMNS = (
    "startup",
    "startup_attempt",
    "attempt",
    "fixture",
    "seed",
    "repeat",
    "block_attempt",
    "role",
    "phase",
    "position",
)


@dataclass(frozen=True)
class Finding:
    row: str  # table and key of the row
    what: str


@dataclass
class Tally:
    rows: int = 0
    rounds: int = 0


def verify(reader: Reader, campaign_id: str, tally: Tally) -> Iterator[Finding]:
    """Every finding, in the order of the tables; `tally` counts what was looked at."""
    for table in schema.metadata.sorted_tables:
        if "campaign_id" in table.c and "row_sha256" in table.c:
            for row in _rows(reader, table, campaign_id):
                tally.rows += 1
                yield from _row_findings(table, row)
    yield from _requests(reader, campaign_id, tally)
    yield from _pairs(reader, campaign_id)


def name_of(table: Table, row: RowMapping) -> str:
    key = [f"{column} {row[column]}" for column in _KEY_COLUMNS if column in row and row[column] not in (None, "")]
    id_ = f" id {row['id']}" if "id" in row else ""
    return f"{table.name}{id_} ({', '.join(key) or row['campaign_id']})"


def _rows(reader: Reader, table: Table, campaign_id: str) -> Iterator[RowMapping]:
    """As the database has them, untouched by types: a hash is over what is stored."""
    query = text(f"SELECT * FROM {table.name} WHERE campaign_id = :campaign")
    yield from reader.connection.execute(query, {"campaign": campaign_id}).mappings()


def _row_findings(table: Table, row: RowMapping) -> Iterator[Finding]:
    if row_sha256(dict(row)) != row["row_sha256"]:
        yield Finding(name_of(table, row), "its columns do not give its row_sha256")


def _requests(reader: Reader, campaign_id: str, tally: Tally) -> Iterator[Finding]:
    table, summary = schema.request, schema.request_summary
    query = (
        select(table, summary)
        .join(summary, summary.c.request_id == table.c.id)
        .where(table.c.campaign_id == campaign_id)
    )
    ids = reader.connection.execute(select(table.c.id).where(table.c.campaign_id == campaign_id)).scalars().all()
    for request_id in ids:
        found = reader.connection.execute(query.where(table.c.id == request_id)).mappings().first()
        if found is None:
            yield Finding(f"request id {request_id}", "it has no summary")
            continue
        yield from _request_findings(reader, found, tally)


def _request_findings(reader: Reader, row: RowMapping, tally: Tally) -> Iterator[Finding]:
    name = name_of(schema.request, row)
    rounds = reader.connection.connection.cursor().execute(_ROUNDS, (row["id"],)).fetchall()
    tally.rounds += len(rounds)
    matrix = to_matrix(list(chain.from_iterable(rounds)))
    if rounds_sha256(matrix) != row["rounds_sha256"]:
        yield Finding(name, f"its {len(rounds)} rounds do not give its rounds_sha256")
    different = same_summary(dict(row), summarise(matrix))
    if different is not None:
        yield Finding(name, f"its rounds do not give the {different} of its summary")
    ids = unpack_ids(row["token_ids"])
    if row["token_sha256"] is not None and (ids is None or token_sha256(ids) != row["token_sha256"]):
        yield Finding(name, "its token ids do not give its token_sha256")


def _pairs(reader: Reader, campaign_id: str) -> Iterator[Finding]:
    methodology = reader.campaign(campaign_id).methodology_version
    for row in _rows(reader, schema.pair, campaign_id):
        pair = decode(Pair, row)
        sides = {role: _request_of(reader, pair, role) for role in Role}
        control, candidate = sides[Role.CONTROL], sides[Role.CANDIDATE]
        if control is None or candidate is None:
            yield Finding(name_of(schema.pair, row), "one of its requests is missing")
            continue
        again = compare(control, candidate, 0, methodology)
        for column in ("exactness", "divergence_index", "divergence_ids", "delta_log", "delta_ns"):
            if getattr(again, column) != getattr(pair, column):
                yield Finding(name_of(schema.pair, row), f"its requests do not give its {column}")


def _request_of(reader: Reader, pair: Pair, role: Role) -> Request | None:
    t, key = schema.request.c, pair.key
    query = select(schema.request).where(
        t.campaign_id == pair.campaign_id,
        t.startup == key.startup,
        t.fixture == key.fixture,
        t.seed == key.seed,
        t.repeat == key.repeat,
        t.block_attempt == pair.block_attempt,
        t.role == role.value,
        t.phase == "measure",
    )
    row = reader.connection.execute(query).mappings().first()
    return None if row is None else decode(Request, row, rounds=(), token_ids=unpack_ids(row["token_ids"]))

"""Recomputes every hash and every summary of a campaign from its rows, and names each row that does not hold.

Rows may be anybody's: each is looked at for what it must be (results.store.soundness) before it is computed with.
Knows what must follow from what: a row's hash from its columns, a request's rounds hash and summary from its rounds,
the token hash from the ids, a pair from its two requests. Writes nothing and repairs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import RowMapping, Table, select, text

from campaigns.exactness.compare import compare
from campaigns.hashes import token_sha256
from campaigns.plan import Role
from campaigns.records import Pair, Request
from results.store import schema
from results.store.hashing import rounds_sha256, row_sha256
from results.store.reader import Reader
from results.store.rounds import COLUMNS, same_summary, summarise, to_matrix
from results.store.rows import decode, unpack_ids
from results.store.soundness import faults

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
    broken = False
    for table in schema.metadata.sorted_tables:
        if "campaign_id" in table.c and "row_sha256" in table.c:
            for row in _rows(reader, table, campaign_id):
                tally.rows += 1
                found = list(row_findings(table, row))
                broken |= bool(found) and table is schema.campaign
                yield from found
    yield from _requests(reader, campaign_id, tally)
    if not broken:
        yield from _pairs(reader, campaign_id)


def name_of(table: Table, row: RowMapping) -> str:
    key = [f"{column} {row[column]}" for column in _KEY_COLUMNS if column in row and row[column] not in (None, "")]
    id_ = f" id {row['id']}" if "id" in row else ""
    of = row.get("campaign_id") or row.get("subject") or row.get("request_id")
    return f"{table.name}{id_} ({', '.join(key) or of})"


def _rows(reader: Reader, table: Table, campaign_id: str) -> Iterator[RowMapping]:
    """As the database has them, untouched by types: a hash is over what is stored."""
    query = text(f"SELECT * FROM main.{table.name} WHERE campaign_id = :campaign")
    yield from reader.connection.execute(query, {"campaign": campaign_id}).mappings()


def row_findings(table: Table, row: RowMapping) -> Iterator[Finding]:
    found = [Finding(name_of(table, row), fault) for fault in faults(table, row)]
    yield from found
    if not found and row_sha256(dict(row)) != row["row_sha256"]:
        yield Finding(name_of(table, row), "its columns do not give its row_sha256")


def _requests(reader: Reader, campaign_id: str, tally: Tally) -> Iterator[Finding]:
    summaries = text("SELECT * FROM request_summary WHERE request_id = :request")
    for row in _rows(reader, schema.request, campaign_id):
        summary = reader.connection.execute(summaries, {"request": row["id"]}).mappings().first()
        name = name_of(schema.request, row)
        if summary is None:
            yield Finding(name, "it has no summary")
            continue
        try:
            found = list(_request_findings(reader, row, summary, tally))
        except (ValueError, TypeError, OverflowError) as error:
            found = [Finding(name, f"its rounds or ids cannot be read ({str(error)[:100]})")]
        yield from found


def _request_findings(reader: Reader, row: RowMapping, summary: RowMapping, tally: Tally) -> Iterator[Finding]:
    name = name_of(schema.request, row)
    for found in row_findings(schema.request_summary, summary):
        yield Finding(name, f"its summary does not hold: {found.what}")
    rounds = reader.connection.connection.cursor().execute(_ROUNDS, (row["id"],)).fetchall()
    tally.rounds += len(rounds)
    matrix = to_matrix(list(chain.from_iterable(rounds)))
    if rounds_sha256(matrix) != row["rounds_sha256"]:
        yield Finding(name, f"its {len(rounds)} rounds do not give its rounds_sha256")
    different = same_summary(dict(summary), summarise(matrix))
    if different is not None:
        yield Finding(name, f"its rounds do not give the {different} of its summary")
    ids = unpack_ids(row["token_ids"])
    if row["token_sha256"] is not None and (ids is None or token_sha256(ids) != row["token_sha256"]):
        yield Finding(name, "its token ids do not give its token_sha256")


def _pairs(reader: Reader, campaign_id: str) -> Iterator[Finding]:
    methodology = reader.campaign(campaign_id).methodology_version
    for row in _rows(reader, schema.pair, campaign_id):
        try:
            found = list(_pair_findings(reader, row, methodology))
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            found = [Finding(name_of(schema.pair, row), f"it cannot be computed again ({str(error)[:100]})")]
        yield from found


def _pair_findings(reader: Reader, row: RowMapping, methodology: int) -> Iterator[Finding]:
    pair = decode(Pair, row)
    sides = {role: _request_of(reader, pair, role) for role in Role}
    control, candidate = sides[Role.CONTROL], sides[Role.CANDIDATE]
    if control is None or candidate is None:
        yield Finding(name_of(schema.pair, row), "one of its requests is missing")
        return
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
    return (
        None if row is None else decode(Request, row, rounds=(), token_ids=unpack_ids(row["token_ids"]), profile=None)
    )

"""The one writer of facts: every fact is inserted once, in a transaction of its own, and never changed.

A request is one transaction with its rounds, its summary and its hashes. Which requests are superseded is derived from
the block attempts, never written. Knows nothing of servers or devices.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from campaigns.errors import IdentityMismatch
from campaigns.plan import Block, Role
from campaigns.records import Campaign, CampaignStatus, DeviceSample, Failure, Look, Pair, Request, Startup, StartupEnd
from campaigns.remarks import Annotation, Decision, Probe, Score
from results.store import schema
from results.store.database import writer_engine, writing
from results.store.hashing import canonical_json, rounds_sha256, row_sha256
from results.store.locks import CampaignLock
from results.store.migrate import migrate
from results.store.recorded import Recorded, recorded
from results.store.rounds import COLUMNS, Flat, flatten, summarise, to_matrix
from results.store.rows import encode, operator_times, pack_ids

_ROUNDS_A_STATEMENT = 60  # half the time of one a statement; parameters stay below 999, SQLite's oldest limit


class Store:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = writer_engine(path)
        self._locks: dict[str, CampaignLock] = {}
        self._writing = threading.RLock()  # one connection, and startups side by side write from threads of their own

    @classmethod
    def open(cls, path: Path) -> Store:
        """Creates or migrates the file. StoreUnwritable: read-only, full or locked; IdentityMismatch: newer schema."""
        migrate(path)
        return cls(path)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Folds the log into the file, so that it can be copied or read from a read-only folder."""
        try:
            # A full disk or a busy reader keeps the log beside the file; nothing is lost by that.
            with suppress(sqlite3.OperationalError):
                self._engine.raw_connection().cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._engine.dispose()
            for lock in self._locks.values():
                lock.release()
            self._locks.clear()

    def begin(self, campaign: Campaign) -> None:
        """Takes the campaign for this process. Does nothing more where the same campaign was begun before."""
        self._lock(campaign.campaign_id)
        with self.transaction() as connection:
            known = schema.campaign.c.campaign_id == campaign.campaign_id
            sha256 = connection.scalar(select(schema.campaign.c.config_sha256).where(known))
            if sha256 is None:
                _insert(connection, schema.campaign, encode(campaign))
            elif sha256 != campaign.config_sha256:
                raise IdentityMismatch(
                    f"campaign {campaign.campaign_id} was begun with configuration {sha256[:12]}, "
                    f"not {campaign.config_sha256[:12]}: start a new campaign"
                )

    def status(self, campaign_id: str, status: CampaignStatus, reason: str = "") -> None:
        """Appends to the campaign's history; the newest status is the one that holds."""
        self._lock(campaign_id)
        row = {"campaign_id": campaign_id, "utc": utc_now(), "status": status.value, "reason": reason}
        self._one(schema.campaign_event, row)

    def startup(self, startup: Startup) -> None:
        self._one(schema.startup, encode(startup) | {"role": startup.role or ""})

    def startup_end(
        self, campaign_id: str, startup: int, attempt: int, end: StartupEnd, role: Role | None = None
    ) -> None:
        """`role` where only one of two lives of the startup ended."""
        key = {"campaign_id": campaign_id, "startup": startup, "attempt": attempt, "role": role or ""}
        self._one(schema.startup_end, key | encode(end))

    def identity(self, campaign_id: str, startup: int, attempt: int, moment: str, live: Mapping[str, Any]) -> None:
        """What the live server said of itself at a moment: warm, or last."""
        key = {"campaign_id": campaign_id, "startup": startup, "attempt": attempt}
        self._one(schema.identity, key | {"moment": moment, "utc": utc_now(), "identity": canonical_json(dict(live))})

    def warm_identities(self, campaign_id: str) -> list[tuple[int, int, Mapping[str, Any]]]:
        """Startup, attempt, and what the warm server of that life said, in the order of writing."""
        t = schema.identity.c
        query = select(t.startup, t.attempt, t.identity).where(t.campaign_id == campaign_id, t.moment == "warm")
        with self._reading() as connection:
            rows = connection.execute(query.order_by(t.id)).all()
        return [(startup, attempt, json.loads(told)) for startup, attempt, told in rows]

    def block(self, campaign_id: str, block: Block, startup_attempt: int) -> int:
        """Opens the next attempt of a block and returns its number, from 1; earlier ones are superseded from now."""
        key = {"campaign_id": campaign_id, "startup": block.startup, "fixture": block.fixture, "seed": block.seed}
        table = schema.block
        same = [table.c[name] == value for name, value in key.items()]
        with self.transaction() as connection:
            attempt = int(connection.scalar(select(func.max(table.c.attempt)).where(*same)) or 0) + 1
            opened = {"attempt": attempt, "startup_attempt": startup_attempt, "opened_utc": utc_now()}
            _insert(connection, table, key | opened)
        return attempt

    def request(self, request: Request) -> None:
        """One transaction: the request, its rounds, its summary, its profile."""
        flat = flatten(request.rounds)
        matrix = to_matrix(flat)
        row = encode(request, without=frozenset({"rounds", "token_ids", "profile"}))
        row |= {"token_ids": pack_ids(request.token_ids), "rounds_sha256": rounds_sha256(matrix)}
        with self.transaction() as connection:
            request_id = _insert(connection, schema.request, row)
            _insert(connection, schema.request_summary, {"request_id": request_id} | summarise(matrix))
            _insert_rounds(connection, request_id, flat)
            _insert_all(connection, schema.operator_time, operator_times(request))

    def pair(self, pair: Pair) -> None:
        self._one(schema.pair, encode(pair))

    def samples(self, campaign_id: str, startup: int, startup_attempt: int, samples: Iterable[DeviceSample]) -> None:
        key = {"campaign_id": campaign_id, "startup": startup, "startup_attempt": startup_attempt}
        self._many(schema.device_sample, [key | encode(sample) for sample in samples])

    def failure(self, failure: Failure) -> None:
        self._one(schema.failure, encode(failure))

    def look(self, look: Look) -> None:
        """Once for each number of startups: whoever looks again at the same rows learns nothing new."""
        t = schema.look.c
        known = select(t.id).where(t.campaign_id == look.campaign_id, t.n_seen == look.n_seen)
        with self.transaction() as connection:
            if connection.scalar(known) is None:
                _insert(connection, schema.look, encode(look))

    def scores(self, scores: Iterable[Score]) -> None:
        self._many(schema.score, [encode(score) for score in scores])

    def probes(self, probes: Iterable[Probe]) -> None:
        self._many(schema.probe, [encode(probe) for probe in probes])

    def decision(self, decision: Decision) -> None:
        self._one(schema.decision, encode(decision))

    def annotations(self, annotations: Iterable[Annotation]) -> None:
        self._many(schema.annotation, [encode(annotation) for annotation in annotations])

    def prompt_hashes(self, corpus: str, tokenizer: str, template: str, hashes: Mapping[str, str]) -> str | None:
        """Records the prompts that are new; or nothing, and returns the first fixture whose prompt is another now."""
        t = schema.prompt_hash
        key = {"corpus": corpus, "tokenizer": tokenizer, "template": template}
        known = select(t.c.fixture, t.c.prompt_sha256).where(*(t.c[name] == value for name, value in key.items()))
        with self.transaction() as connection:
            before = {row.fixture: row.prompt_sha256 for row in connection.execute(known)}
            differing = next((f for f, h in hashes.items() if before.get(f, h) != h), None)
            if differing is None:
                new = [key | {"fixture": f, "prompt_sha256": h} for f, h in hashes.items() if f not in before]
                _insert_all(connection, t, new)
        return differing

    def baseline(self, name: str, campaign_ids: Iterable[str], note: str = "") -> None:
        """Adds campaigns to a named set; one that is in it stays as it is."""
        table = schema.baseline
        members = select(table.c.campaign_id).where(table.c.name == name)
        with self.transaction() as connection:
            known = set(connection.scalars(members))
            rows = [{"utc": utc_now(), "name": name, "campaign_id": i, "note": note} for i in campaign_ids]
            _insert_all(connection, table, [row for row in rows if row["campaign_id"] not in known])

    def recorded(self, campaign_id: str, startup: int | None = None) -> Recorded:
        with self._reading() as connection:
            return recorded(connection, campaign_id, startup)

    def _one(self, table: Table, row: Mapping[str, Any]) -> None:
        with self.transaction() as connection:
            _insert(connection, table, row)

    def _many(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        with self.transaction() as connection:
            _insert_all(connection, table, rows)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A question to the one connection: beside another thread's transaction its end would be that one's end."""
        with self._writing, writing(self.path), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction of facts; refusals of the disk are sentences."""
        with self._writing, writing(self.path), self._engine.begin() as connection:
            yield connection

    def _lock(self, campaign_id: str) -> None:
        if campaign_id not in self._locks:
            self._locks[campaign_id] = CampaignLock(self.path, campaign_id)


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _insert(connection: Connection, table: Table, row: Mapping[str, Any]) -> int:
    """The id of the new row."""
    whole = {**row, "row_sha256": row_sha256(row)}
    statement, names = _statement(table, frozenset(whole))
    return int(connection.exec_driver_sql(statement, tuple(whole[name] for name in names)).lastrowid)


@cache
def _statement(table: Table, columns: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """SQLAlchemy's words for one row, compiled once, and the order of their parameters."""
    compiled = insert(table).compile(dialect=sqlite_dialect(), column_keys=sorted(columns))
    return str(compiled), tuple(compiled.positiontup or ())


def _insert_all(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), [{**row, "row_sha256": row_sha256(row)} for row in rows])


def _insert_rounds(connection: Connection, request_id: int, flat: Flat) -> None:
    """Through the driver, many rounds a statement: SQLAlchemy's executemany takes ten times as long."""
    width = _ROUNDS_A_STATEMENT * len(COLUMNS)
    cursor = connection.connection.cursor()
    for start in range(0, len(flat), width):
        part = flat[start : start + width]
        cursor.execute(_insert_of(len(part) // len(COLUMNS)), (request_id, *part))
    cursor.close()


@cache
def _insert_of(num_rounds: int) -> str:
    """One statement for so many rounds of one request."""
    width = len(COLUMNS)
    rows = (", ".join(f"?{2 + row * width + column}" for column in range(width)) for row in range(num_rounds))
    return f"INSERT INTO round (request_id, {', '.join(COLUMNS)}) VALUES " + ", ".join(f"(?1, {row})" for row in rows)

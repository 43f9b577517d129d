"""Reads facts back as they were written. Never writes: an older store is migrated in a copy that lives as long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Select, Table, bindparam, select, text
from sqlalchemy.exc import DBAPIError

from campaigns.errors import IdentityMismatch, UsageError
from campaigns.plan import Role
from campaigns.records import (
    Campaign,
    CampaignStatus,
    DeviceSample,
    Failure,
    Look,
    Pair,
    Request,
    Round,
    Startup,
    StartupEnd,
)
from campaigns.remarks import Annotation, Decision, Mark, Probe, Score
from results.store import schema
from results.store.copies import MigratedCopy
from results.store.damage import Damaged
from results.store.database import complaint, reader_engine
from results.store.locks import has_writer
from results.store.migrate import check_known, revision
from results.store.recorded import Recorded, recorded
from results.store.rounds import COLUMNS, from_rows
from results.store.rows import decode, unpack_ids

T = TypeVar("T")
DROPPED = "drop-from-baseline"  # a decision about `baseline/campaign`
ENDED_WITHOUT = frozenset({CampaignStatus.FAILED, CampaignStatus.HELD, CampaignStatus.INTERRUPTED})  # a result
ADDED = "rows added from "  # a source of rows of a campaign that was there already
_ROUNDS = f"SELECT {', '.join(COLUMNS)} FROM round WHERE request_id = ? ORDER BY round_index"


@dataclass(frozen=True)
class Life:
    """One server life as it stands: its startup, and how it ended once it has."""

    startup: Startup
    end: StartupEnd | None


@dataclass(frozen=True)
class IdentityEvent:
    """What the live server and its devices said of themselves at one moment of a startup: `warm`, then `last`."""

    startup: int
    attempt: int
    moment: str
    utc: str
    identity: Mapping[str, Any]


@dataclass(frozen=True)
class StatusEvent:
    utc: str
    status: CampaignStatus
    reason: str


@dataclass(frozen=True)
class StoredRequest:
    """A request with what only the store knows of it."""

    request_id: int
    request: Request
    superseded: bool


@cache
def _select(table: Table, order: str, *, whole: bool) -> Select[Any]:
    """Made once: SQLAlchemy takes longer to build a question than SQLite to answer it."""
    query = select(table).order_by(table.c[order])
    return query if whole else query.where(table.c.campaign_id == bindparam("campaign"))


class Reader:
    def __init__(self, path: Path, copy: MigratedCopy | None = None) -> None:
        """`copy` keeps the migrated copy of an older store for the next reader; without it, it goes with this one."""
        self.path = path
        self._own_copy = MigratedCopy() if copy is None else None
        self._copy = copy or self._own_copy
        self._engine = reader_engine(path)
        try:
            self.connection = self._current(self._engine.connect())
            self.damaged = Damaged(self.connection)
        except DBAPIError as error:
            raise complaint(path, error) or error from error

    @classmethod
    def open(cls, path: Path, copy: MigratedCopy | None = None) -> Reader:
        return cls(path, copy)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        if error is not None and (said := complaint(self.path, error)) is not None:
            raise said from error

    def close(self) -> None:
        self.connection.close()
        self._engine.dispose()
        if self._own_copy is not None:
            self._own_copy.close()

    def resolve(self, name: str, *, damaged: bool = False) -> str:
        """The id that `name` means: `last`, a whole id, or a beginning that only one campaign has.

        `damaged`: also of a campaign that cannot be read, for whoever looks at its rows; else IdentityMismatch.
        """
        t = schema.campaign.c
        ids = list(self.connection.scalars(select(t.campaign_id).order_by(t.created_utc, text("rowid"))))
        for broken in (i for i in self.damaged if name != "last" and i.startswith(name) and name not in ids):
            if damaged:
                return broken
            raise IdentityMismatch(
                f"campaign {broken} is damaged: {self.damaged[broken]}; campaign verify {broken} names the rows, and "
                "only another copy of the store has it whole"
            )
        if not ids and self.damaged:
            raise IdentityMismatch(
                f"the store {self.path} holds no campaign that can be read: {self.damaged.lines()[-1]}"
            )
        if not ids:
            raise UsageError(
                f"the store {self.path} holds no campaign yet: start one with `campaign run`; of a "
                "store in use copy FILE-wal as well"
            )
        if name == "last":
            return str(ids[-1])
        matches = [i for i in ids if i.startswith(name)] if name not in ids else [name]
        if len(matches) == 1:
            return str(matches[0])
        if matches:
            raise UsageError(f"{name!r} could be any of {', '.join(matches)}: give more of the id")
        raise UsageError(f"no campaign is named {name!r}; the newest are {', '.join(ids[-5:])}")

    def campaigns(self) -> list[Campaign]:
        return self._facts(Campaign, schema.campaign, None, "created_utc")

    def campaign(self, campaign_id: str) -> Campaign:
        return self._facts(Campaign, schema.campaign, campaign_id, "created_utc")[0]

    def status(self, campaign_id: str) -> CampaignStatus:
        """The newest status; interrupted where the driver died before it could write one."""
        history = self.status_history(campaign_id)
        newest = history[-1].status if history else CampaignStatus.RUNNING
        abandoned = newest is CampaignStatus.RUNNING and not has_writer(self.path, campaign_id)
        return CampaignStatus.INTERRUPTED if abandoned else newest

    def status_history(self, campaign_id: str) -> list[StatusEvent]:
        return self._facts(StatusEvent, schema.campaign_event, campaign_id)

    def lives(self, campaign_id: str) -> list[Life]:
        """Every server life in the order in which they came up."""
        ends = {
            (row["startup"], row["attempt"], row["role"]): decode(StartupEnd, row)
            for row in self._rows(schema.startup_end, campaign_id, "id")
        }
        return [
            Life(
                decode(Startup, row, role=Role(row["role"]) if row["role"] else None),
                ends.get((row["startup"], row["attempt"], row["role"]), ends.get((row["startup"], row["attempt"], ""))),
            )
            for row in self._rows(schema.startup, campaign_id, "id")
        ]

    def identities(self, campaign_id: str) -> list[IdentityEvent]:
        return self._facts(IdentityEvent, schema.identity, campaign_id)

    def requests(self, campaign_id: str, *, with_rounds: bool = True) -> Iterator[StoredRequest]:
        """Every request as it was recorded, warm-ups and superseded ones too; profiles are `operator_times`."""
        newest = self.recorded(campaign_id).block_attempts
        for row in self._rows(schema.request, campaign_id, "id"):
            rounds = self.rounds(row["id"]) if with_rounds else ()
            request = decode(Request, row, rounds=rounds, token_ids=unpack_ids(row["token_ids"]), profile=None)
            latest = newest.get((row["startup"], row["fixture"], row["seed"]), 0)
            # Attempt 0 is no block's: the warm-ups of a new server life.
            yield StoredRequest(row["id"], request, 0 < row["block_attempt"] < latest)

    def request(self, request_id: int) -> Request:
        row = self.connection.execute(select(schema.request).where(schema.request.c.id == request_id)).mappings().one()
        ids = unpack_ids(row["token_ids"])
        return decode(Request, row, rounds=self.rounds(request_id), token_ids=ids, profile=None)

    def rounds(self, request_id: int) -> tuple[Round, ...]:
        return from_rows(self.connection.connection.cursor().execute(_ROUNDS, (request_id,)))

    def token_ids(self, request_id: int) -> tuple[int, ...] | None:
        query = select(schema.request.c.token_ids).where(schema.request.c.id == request_id)
        return unpack_ids(self.connection.scalar(query))

    def operator_times(self, campaign_id: str) -> Sequence[RowMapping]:
        """The rows of every profile, those of superseded block attempts too."""
        return self._rows(schema.operator_time, campaign_id, "id")

    def pairs(self, campaign_id: str) -> list[Pair]:
        """Every pair, those of superseded block attempts too."""
        return self._facts(Pair, schema.pair, campaign_id)

    def samples(self, campaign_id: str) -> list[DeviceSample]:
        return self._facts(DeviceSample, schema.device_sample, campaign_id)

    def failures(self, campaign_id: str) -> list[Failure]:
        return self._facts(Failure, schema.failure, campaign_id)

    def looks(self, campaign_id: str) -> list[Look]:
        return self._facts(Look, schema.look, campaign_id)

    def scores(self, campaign_id: str) -> list[Score]:
        return self._facts(Score, schema.score, campaign_id)

    def probes(self) -> list[Probe]:
        return self._facts(Probe, schema.probe)

    def decisions(self) -> list[Decision]:
        return self._facts(Decision, schema.decision)

    def annotations(self, campaign_id: str | None = None) -> list[Annotation]:
        """Of one campaign or of all, in the order in which they were written, wherever that was."""
        found = self._facts(Annotation, schema.annotation, campaign_id)
        return sorted(found, key=lambda annotation: datetime.fromisoformat(annotation.utc))

    def tags(self) -> dict[str, list[str]]:
        """The tags that hold, by campaign; a campaign without any is not there."""
        found: dict[str, dict[str, None]] = {}
        for note in self.annotations():
            if note.mark is Mark.TAG:
                found.setdefault(note.campaign_id, {})[note.text] = None
            elif note.mark is Mark.UNTAG:
                found.get(note.campaign_id, {}).pop(note.text, None)
        return {name: list(tags) for name, tags in found.items() if tags}

    def archived(self) -> frozenset[str]:
        """Campaigns that lists leave out. One that is complete or runs is in every list, whatever was said of it."""
        newest: dict[str, Mark] = {
            note.campaign_id: note.mark for note in self.annotations() if note.mark in (Mark.ARCHIVE, Mark.RESTORE)
        }
        asked = [name for name, mark in newest.items() if mark is Mark.ARCHIVE]
        return frozenset(name for name in asked if self.status(name) in ENDED_WITHOUT)

    def imported_from(self, campaign_id: str) -> str:
        """The store that a campaign was imported from; empty for one that this store's own runs measured."""
        query = select(schema.imported.c.source).where(schema.imported.c.campaign_id == campaign_id)
        return next((source for source in self.connection.scalars(query) if not source.startswith(ADDED)), "")

    def baselines(self) -> dict[str, list[str]]:
        """Campaigns of each named baseline, in the order in which they were added, without the dropped ones."""
        dropped = {decision.subject for decision in self.decisions() if decision.decision == DROPPED}
        found: dict[str, list[str]] = {}
        for row in self._rows(schema.baseline, None, "id"):
            if f"{row['name']}/{row['campaign_id']}" not in dropped:
                found.setdefault(row["name"], []).append(row["campaign_id"])
        return found

    def recorded(self, campaign_id: str) -> Recorded:
        return recorded(self.connection, campaign_id)

    def _facts(self, kind: type[T], table: Table, campaign_id: str | None = None, order: str = "id") -> list[T]:
        return [decode(kind, row) for row in self._rows(table, campaign_id, order)]

    def _rows(self, table: Table, campaign_id: str | None, order: str) -> Sequence[RowMapping]:
        query = _select(table, order, whole=campaign_id is None)
        return self.connection.execute(query, {"campaign": campaign_id}).mappings().all()

    def _current(self, connection: Connection) -> Connection:
        """The connection itself, or one to a migrated copy where the store is older."""
        found = revision(self.path, connection)
        if found == schema.REVISION:
            return connection
        connection.close()
        if found is None:
            raise UsageError(f"the store {self.path} is empty: run a campaign first")
        check_known(self.path, found)
        assert self._copy is not None, "made beside the connection"
        self._engine = reader_engine(self._copy.of(self.path))
        return self._engine.connect()

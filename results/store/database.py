"""How a store file is opened, for the one writer and for readers, and what SQLite's complaints mean to a user.

The writer: WAL, synchronous FULL, foreign keys, 30 s of patience with other writers, explicit BEGIN IMMEDIATE. A reader
never writes: it opens read-only, and as immutable where the folder admits no shared-memory file.
"""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from campaigns.errors import StoreUnreadable, StoreUnwritable, StoreWarning, UsageError

BUSY_TIMEOUT_S = 30.0
_RETRY_S = 0.01
_NOT_A_DATABASE = "file is not a database"
_DAMAGED = (
    "malformed",
    "I/O",
    "no such table",
    "no such column",
    "Could not decode to UTF-8",
)  # a revision has its tables, or somebody dropped them


def writer_engine(path: Path, *, foreign_keys: bool = True) -> Engine:
    """One connection, made at first use; every transaction takes the write lock when it begins."""

    def connect() -> sqlite3.Connection:
        # Threads of one driver write, one at a time: the Store sees to that.
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        _to_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA foreign_keys = {int(foreign_keys)}")
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=StaticPool)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _to_wal(connection: sqlite3.Connection) -> None:
    """Waits as a transaction would: SQLite itself has no patience where a new file's first writers change its mode."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline_s:
                raise
        time.sleep(_RETRY_S)


def reader_engine(path: Path) -> Engine:
    """A read-only connection. A store without a file, or that is none, is a usage error."""
    if not path.is_file():
        raise UsageError(f"there is no store at {path}: run a campaign first, or name another file with --store")
    return create_engine("sqlite://", creator=lambda: read_only(path), poolclass=StaticPool)


def read_only(path: Path) -> sqlite3.Connection:
    """Sees what the writer committed; immutable, and so blind to an unfinished log, where the folder is read-only."""
    for query in ("mode=ro", "mode=ro&immutable=1"):
        if "immutable" in query:
            _say_blind(path)
        try:
            return _opened(f"file:{quote(str(path.absolute()))}?{query}")
        except sqlite3.DatabaseError as error:
            if _NOT_A_DATABASE in str(error):
                raise not_a_store(path) from error
            if "immutable" in query:
                told = StoreUnreadable(f"the store {path} cannot be read ({error}): ask its owner, or for a copy")
                raise complaint(path, error) or told from error
    raise AssertionError("unreachable")


def _say_blind(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    if log.is_file() and log.stat().st_size:
        newest = "its newest rows are in a log beside it that cannot be read in a read-only folder"
        warnings.warn(f"the store {path} is read as it was: {newest}; copy both files", StoreWarning, stacklevel=2)


def _opened(uri: str) -> sqlite3.Connection:
    """A connection that has read the file's schema."""
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the database's refusal to write into one sentence; nothing that was committed is lost by it."""
    try:
        yield
    except (DBAPIError, sqlite3.DatabaseError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, sqlite3.OperationalError):
            raise StoreUnwritable(_sentence(path, str(cause))) from error
        if _NOT_A_DATABASE in str(cause):
            raise not_a_store(path) from error
        raise


def complaint(path: Path, error: BaseException) -> StoreUnreadable | None:
    """What SQLite says of a damaged or busy file, as one sentence; None for an error that is none of its own."""
    while not isinstance(error, DBAPIError | sqlite3.DatabaseError):
        if error.__cause__ is None:
            return None
        error = error.__cause__  # pandas wraps what it was told
    cause = str(error.orig if isinstance(error, DBAPIError) else error)
    if any(words in cause for words in _DAMAGED):
        return StoreUnreadable(f"the store {path} is damaged ({cause}): go back to a copy of it")
    if "locked" in cause:
        return StoreUnreadable(f"the store {path} was locked for {BUSY_TIMEOUT_S:.0f} s: ask again later")
    return None


def not_a_store(path: Path) -> UsageError:
    """One fault, one sentence, whoever opens the file and whether it is SQLite at all."""
    return UsageError(f"{path} is not a store of campaigns: name another file with --store")


def _sentence(path: Path, complaint: str) -> str:
    kept = "everything committed before is kept"
    if "full" in complaint:
        return f"the store {path} cannot grow, the disk is full: free some space and resume; {kept}"
    if "locked" in complaint:
        return f"the store {path} was locked by another process for {BUSY_TIMEOUT_S:.0f} s: resume later; {kept}"
    if "readonly" in complaint or "unable to open" in complaint:
        return f"the store {path} is not writable ({complaint}): name a writable place with --store"
    if "I/O" in complaint:
        return f"the store {path} cannot be written ({complaint}): a size limit or the disk refused; {kept}"
    return f"the store {path} refused a write ({complaint}); {kept}"


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")

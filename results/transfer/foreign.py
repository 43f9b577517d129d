"""Another's store, opened as something that anybody may have made: read only, as a copy, within limits, tables alone.

What a query on a hostile file could run is in its schema: views, triggers, generated columns, virtual tables. So the
schema is compared before anything is asked of it, and a clock stops whatever takes too long. Rows are judged afterwards
(results.store.verify).
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from campaigns.errors import IdentityMismatch, UsageError
from results.store.database import not_a_store, read_only
from results.store.migrate import blueprint, check_known
from results.store.reader import Reader

_STEPS = 10_000  # of SQLite's virtual machine between two looks at the clock
_PAGES = 1024  # copied between two looks
_INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Limits:
    max_s: float = 600.0
    max_bytes: int = 16 << 30


@contextmanager
def opened(path: Path, limits: Limits) -> Iterator[Reader]:
    """A reader of a copy. UsageError where a limit is met or it is no store, IdentityMismatch for another schema."""
    deadline = time.monotonic() + limits.max_s
    with tempfile.TemporaryDirectory(prefix="campaign-import-") as folder:
        copy = Path(folder) / "store.sqlite"
        with _within(path, limits):
            _check_size(path, limits)
            with closing(read_only(path)) as other:
                _guard(other, deadline)
                _check_schema(path, other)
                _copy(other, copy, deadline)
            with Reader.open(copy) as reader:
                driver = reader.connection.connection.driver_connection
                assert isinstance(driver, sqlite3.Connection), driver
                _guard(driver, deadline)
                _check_pages(path, driver)
                yield reader


@contextmanager
def _within(path: Path, limits: Limits) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # SQLAlchemy wraps what SQLite raises
        if _INTERRUPTED in str(error):
            raise UsageError(
                f"{path} could not be read within {limits.max_s:g} s: nothing of it was imported; give it longer with "
                "--max-s"
            ) from error
        raise


def _check_size(path: Path, limits: Limits) -> None:
    if path.is_file() and path.stat().st_size > limits.max_bytes:
        raise UsageError(f"{path} has more than {limits.max_bytes >> 30} GiB: import a store of the wanted campaigns")


def _guard(connection: sqlite3.Connection, deadline: float) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)


def _check_schema(path: Path, other: sqlite3.Connection) -> None:
    """Against a store of the same revision, made here: the same tables with the same columns, and nothing that acts."""
    kinds = dict(other.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"))
    if not {"alembic_version", "campaign"} <= kinds.keys():
        raise not_a_store(path)
    if fault := _shape_fault(other, "alembic_version", frozenset({"version_num"})):
        raise IdentityMismatch(f"{path} is not imported: {fault}")
    revision = str((other.execute("SELECT version_num FROM alembic_version LIMIT 1").fetchone() or [""])[0])
    check_known(path, revision)
    for name, columns in blueprint(revision).items():
        if fault := _shape_fault(other, name, columns):
            raise IdentityMismatch(f"{path} is not imported: {fault}")
    if trigger := other.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' LIMIT 1").fetchone():
        raise IdentityMismatch(f"{path} is not imported: a store has no trigger, and it has {trigger[0]!r}")


def _shape_fault(other: sqlite3.Connection, name: str, columns: frozenset[str]) -> str:
    found = other.execute("SELECT type, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE", (name,)).fetchall()
    if len(found) != 1 or found[0][0] != "table" or not str(found[0][1]).upper().startswith("CREATE TABLE"):
        return f"its {name} is not a table"
    shape = {row[1]: row[6] for row in other.execute(f"PRAGMA table_xinfo({name})")}
    if set(shape) != columns or any(shape.values()):
        return f"its table {name} does not have a store's columns"
    return ""


def _copy(other: sqlite3.Connection, target: Path, deadline: float) -> None:
    def look(status: int, remaining: int, total: int) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(_INTERRUPTED)

    with closing(sqlite3.connect(target)) as copy:
        other.backup(copy, pages=_PAGES, progress=look)


def _check_pages(path: Path, driver: sqlite3.Connection) -> None:
    [(told,)] = driver.execute("PRAGMA quick_check(1)").fetchall()
    if told != "ok":
        raise IdentityMismatch(f"{path} is not imported: the file is damaged ({str(told)[:100]})")

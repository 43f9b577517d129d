"""Brings a store to the newest revision: copies the file first, then runs alembic in one transaction.

Readers never migrate in place: an older store is copied, and the copy migrated, for as long as it is read.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.pool import StaticPool

from campaigns.errors import IdentityMismatch
from results.store.database import not_a_store, reader_engine, writer_engine, writing
from results.store.place import make_place
from results.store.schema import REVISION

MIGRATIONS = Path(__file__).with_name("migrations")


def migrate(path: Path) -> None:
    """Creates the store, or brings it up to date; an older one is first copied to `<name>.<revision>.bak`."""
    make_place(path)
    with writing(path):
        _check_ours(path)
        engine = writer_engine(path, foreign_keys=False)
        try:
            with engine.begin() as connection:
                _upgrade(path, connection)
        finally:
            engine.dispose()


def revision(path: Path, connection: Connection) -> str | None:
    """The store's revision; None for an empty file, UsageError for another program's."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    ours = {"alembic_version", "campaign"} <= set(tables)  # other programs use alembic too
    found = connection.scalar(text("SELECT version_num FROM alembic_version")) if ours else None
    if found is None:
        raise not_a_store(path)
    return str(found)


def check_known(path: Path, found: str) -> None:
    """IdentityMismatch for a later revision of ours, UsageError for one that cannot be ours."""
    if found in _revisions():
        return
    if not re.fullmatch(r"\d{4}", found) or found < REVISION:
        raise not_a_store(path)
    raise IdentityMismatch(
        f"the store {path} was written by a newer version (it has revision {found}, this version knows {REVISION} and "
        "older): use that version"
    )


def _check_ours(path: Path) -> None:
    """Before a writer opens a file and changes it: nothing, an empty file, or a store of a known revision."""
    if not (path.is_file() and path.stat().st_size):
        return
    engine = reader_engine(path)
    try:
        with engine.connect() as connection:
            found = revision(path, connection)
    finally:
        engine.dispose()
    if found not in (None, REVISION):
        check_known(path, str(found))


def copy_store(source: Path, target: Path) -> None:
    """A consistent copy, also while a writer is at work."""
    origin, copy = sqlite3.connect(source), sqlite3.connect(target)
    try:
        origin.backup(copy)
    finally:
        origin.close()
        copy.close()


def _upgrade(path: Path, connection: Connection) -> None:
    found = revision(path, connection)
    if found == REVISION:
        return
    if found is not None:
        copy_store(path, path.with_name(f"{path.name}.{found}.bak"))
    _run_alembic(connection)


@cache  # every import looks at it, and it never changes
def blueprint(revision: str) -> Mapping[str, frozenset[str]]:
    """The columns of every table of a store of this revision."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    try:
        with engine.begin() as connection:
            _run_alembic(connection, revision)
            look = inspect(connection)
            return {n: frozenset(c["name"] for c in look.get_columns(n)) for n in look.get_table_names()}
    finally:
        engine.dispose()


def _run_alembic(connection: Connection, revision: str = "head") -> None:
    from alembic import command  # half a second that an up-to-date store need not pay

    command.upgrade(_config(connection), revision)


def _revisions() -> frozenset[str]:
    from alembic.script import ScriptDirectory

    return frozenset(s.revision for s in ScriptDirectory(str(MIGRATIONS)).walk_revisions())


def _config(connection: Connection):  # type: ignore[no-untyped-def]  # alembic's Config is imported late
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config

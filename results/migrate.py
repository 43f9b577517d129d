"""Brings a store to the newest revision: copies the file first, then runs alembic in one transaction.

Readers never migrate in place: an older store is copied, and the copy migrated, for as long as it is read.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from campaigns.errors import IdentityMismatch
from results.database import check_ours, not_a_store, writer_engine, writing
from results.place import make_place
from results.schema import REVISION

MIGRATIONS = Path(__file__).with_name("migrations")


def migrate(path: Path) -> None:
    """Creates the store, or brings it up to date; an older one is first copied to `<name>.<revision>.bak`."""
    make_place(path)
    check_ours(path)
    with writing(path):
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
    found = connection.scalar(text("SELECT version_num FROM alembic_version")) if "alembic_version" in tables else None
    if found is None:
        raise not_a_store(path)
    return str(found)


def check_known(path: Path, found: str) -> None:
    if found not in _revisions():
        raise IdentityMismatch(
            f"the store {path} has revision {found}, this version knows {REVISION} and older: use the newer version"
        )


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
        check_known(path, found)
        copy_store(path, path.with_name(f"{path.name}.{found}.bak"))
    _run_alembic(connection)


def _run_alembic(connection: Connection) -> None:
    from alembic import command  # half a second that an up-to-date store need not pay

    command.upgrade(_config(connection), "head")


def _revisions() -> frozenset[str]:
    from alembic.script import ScriptDirectory

    return frozenset(s.revision for s in ScriptDirectory(str(MIGRATIONS)).walk_revisions())


def _config(connection: Connection):  # type: ignore[no-untyped-def]  # alembic's Config is imported late
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config

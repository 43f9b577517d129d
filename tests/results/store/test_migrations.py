"""Every released revision opens: migrated in place by the writer, in a copy by the reader; a newer one is refused."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from campaigns.errors import IdentityMismatch, UsageError
from results.reports.report import render
from results.store.migrate import MIGRATIONS
from results.store.reader import Reader
from results.store.verify import Tally, verify
from results.store.writer import Store, schema

STORES = Path(__file__).with_name("stores")
SCRIPTS = ScriptDirectory(str(MIGRATIONS))
REVISIONS = sorted(script.revision for script in SCRIPTS.walk_revisions())


@pytest.fixture(scope="module", autouse=True)
def fresh_stores():
    """Every store here is made by the migrations."""


def test_the_code_knows_the_newest_revision():
    assert SCRIPTS.get_current_head() == schema.REVISION


def test_there_is_a_store_of_every_released_revision():
    assert sorted(path.stem for path in STORES.glob("*.sqlite")) == REVISIONS


def test_migrations_build_what_the_schema_says(tmp_path):
    path = tmp_path / "store.sqlite"
    Store.open(path).close()
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
    engine.dispose()


@pytest.fixture(params=REVISIONS)
def old(request, tmp_path):
    path = tmp_path / "store.sqlite"
    shutil.copy(STORES / f"{request.param}.sqlite", path)
    return path


def test_a_reader_opens_it_and_changes_nothing(old):
    before = old.read_bytes()
    with Reader.open(old) as reader:
        campaign_id = reader.resolve("last")
        assert "30 exact" not in render(reader, campaign_id, "md")
        assert len(reader.recorded(campaign_id).pairs) == 12
    assert old.read_bytes() == before
    assert sorted(p.name for p in old.parent.iterdir()) == ["store.sqlite"]


def test_the_writer_migrates_it_and_keeps_a_copy(old):
    found = sqlite3.connect(old).execute("SELECT version_num FROM alembic_version").fetchone()[0]
    Store.open(old).close()
    assert sqlite3.connect(old).execute("SELECT version_num FROM alembic_version").fetchone() == (schema.REVISION,)
    copy = old.with_name(f"store.sqlite.{found}.bak")
    assert copy.exists() == (found != schema.REVISION)
    if copy.exists():
        with Reader.open(copy) as reader:
            assert len(reader.recorded(reader.resolve("last")).pairs) == 12
    with Reader.open(old) as reader:
        assert list(verify(reader, reader.resolve("last"), Tally())) == []  # old hashes hold in the new schema


def test_a_newer_revision_is_refused_by_both_and_left_alone(tmp_path):
    path = tmp_path / "store.sqlite"
    Store.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.execute("PRAGMA journal_mode = DELETE")  # so that a writer's switch to WAL would be seen
    connection.close()
    before = path.read_bytes()
    for opener in (Reader.open, Store.open):
        with pytest.raises(IdentityMismatch, match=r"newer version .*revision 9999, this version knows \d+"):
            opener(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        (("pages",), "27c6a30d7c24"),  # another program's
        (("pages",), "0001"),  # likewise, and it counts as we do
        (("pages",), "9999"),
        (("campaign",), "27c6a30d7c24"),
        (("campaign",), "0000"),
    ],
)
def test_another_programs_alembic_file_is_refused_and_left_alone(tmp_path, tables, found):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (x)")
    connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
    connection.execute("INSERT INTO alembic_version VALUES (?)", (found,))
    connection.commit()
    connection.close()
    before = path.read_bytes()
    for opener in (Reader.open, Store.open):
        with pytest.raises(UsageError, match="is not a store of campaigns"):
            opener(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["other.sqlite"]


def test_a_failed_migration_leaves_the_old_store(old, monkeypatch):
    found = sqlite3.connect(old).execute("SELECT version_num FROM alembic_version").fetchone()[0]
    if found == schema.REVISION:
        pytest.skip("nothing to migrate")
    from alembic.runtime.migration import HeadMaintainer

    before = sqlite3.connect(old).execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()

    def refuse(*args, **kwargs):  # after the first revision's statements
        raise RuntimeError("half way")

    monkeypatch.setattr(HeadMaintainer, "update_to_step", refuse)
    with pytest.raises(RuntimeError, match="half way"):
        Store.open(old)
    connection = sqlite3.connect(old)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (found,)
    assert connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall() == before


def test_a_row_that_did_not_hold_is_still_found_after_its_column_went(tmp_path):
    path = tmp_path / "store.sqlite"
    shutil.copy(STORES / "0002.sqlite", path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE startup_end SET message = 'nothing happened' WHERE status = 'failed'")
    Store.open(path).close()
    with Reader.open(path) as reader:
        assert ["startup_end" in str(fault) for fault in verify(reader, reader.resolve("last"), Tally())] == [True]

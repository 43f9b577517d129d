"""Stores that somebody else made, with hashes that hold: nothing bad enters, and a bad campaign hides no other."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from contextlib import closing, suppress

import pytest

from campaigns.errors import IdentityMismatch, UsageError
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from campaigns.records import CampaignStatus
from orchestrator.campaign import resume
from orchestrator.cli import main
from results.store.hashing import row_sha256
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.foreign import Limits, opened
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

PLAN = CampaignPlan(
    name="unit",
    control=Arm("control"),
    candidate=Arm("candidate"),
    fixtures=(Fixture("alpha", "{}", (0,)),),
    server=ServerPlan("null"),
    startups=1,
    pairs=2,
)


def made(path, run_number=1):
    with Store.open(path) as store:
        return Driver(store, PLAN, lambda s, a: Script(Trajectory(30, 10, 19), 16.0), run_number=run_number).run()


def forged(path, table, **values):
    """The first row of the table with other values and a hash that fits them, as whoever lies would write it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute(f"SELECT rowid AS number, * FROM {table} LIMIT 1").fetchone())
        number = row.pop("number")
        row |= values
        with suppress(ValueError):  # no hash fits what is infinite
            row["row_sha256"] = row_sha256(row)
        sets = ", ".join(f"{name} = ?" for name in row)
        connection.execute(f"UPDATE {table} SET {sets} WHERE rowid = ?", (*row.values(), number))
        connection.commit()


def deep():
    return "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def both(module_ram):
    mine, other = module_ram / "mine.sqlite", module_ram / "other.sqlite"
    return mine, made(mine), other, made(other, 2)


@pytest.fixture
def stores(both, ram):
    mine, own, other, theirs = both
    return shutil.copy(mine, ram / "mine.sqlite"), own, shutil.copy(other, ram / "other.sqlite"), theirs


def rows_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def import_other(mine, other, capsys):
    code = main(["import", str(other), "--store", str(mine)])
    told = capsys.readouterr()
    return code, told.out + told.err


def ids_of(path):
    with Reader.open(path) as reader:
        return [campaign.campaign_id for campaign in reader.campaigns()]


@pytest.mark.parametrize(
    ("table", "values", "told"),
    [
        ("campaign", {"plan_json": "{"}, "cannot be read"),
        ("campaign", {"plan_json": "[]"}, "is no plan"),
        ("campaign", {"plan_json": json.dumps({"startups": 10**12})}, "startups"),
        ("campaign", {"plan_json": deep()}, "cannot be read"),
        ("campaign", {"fingerprint": "[]"}, "fingerprint"),
        ("campaign", {"created_utc": "9999-12-31T00:00:00+00:00"}, "not in the past"),
        ("campaign", {"created_utc": "yesterday"}, "no time"),
        ("campaign_event", {"status": "triumphant"}, "triumphant"),
        ("pair", {"delta_log": float("inf")}, "delta_log is inf"),
        ("pair", {"delta_log": "fast"}, "delta_log is str"),
        ("pair", {"reasons": '["because"]'}, "because"),
        ("request", {"token_ids": b""}, "more than"),
        ("request", {"role": "judge"}, "judge"),
        ("request", {"end_ns": "late"}, "end_ns is str"),
        ("request_summary", {"engine_round_p50_ns": float("inf")}, "summary does not hold: its engine_round_p50_ns"),
        ("startup", {"identity": "[]"}, "identity"),
        ("startup_end", {"status": "dead"}, "dead"),
    ],
)  # fmt: skip
def test_a_row_that_makes_no_sense_keeps_its_campaign_out(stores, capsys, table, values, told):
    mine, own, other, _ = stores
    bomb = values.get("token_ids") == b""  # half a second to make, so not where tests are collected
    forged(other, table, **({"token_ids": zlib.compress(bytes(1 << 27), 1)} if bomb else values))
    before = rows_of(mine)
    code, said = import_other(mine, other, capsys)
    assert code == 6 and table.partition("_summary")[0] in said and told in said, said
    assert ids_of(mine) == [own] and rows_of(mine) == before


def test_an_id_that_is_a_path_stays_out(stores, capsys):
    mine, own, other, theirs = stores
    with closing(sqlite3.connect(other)) as connection:
        tables = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if "campaign_id" in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}:
                connection.execute(f"UPDATE {table} SET campaign_id = '../../' || campaign_id")
        connection.commit()
    code, said = import_other(mine, other, capsys)
    assert code == 6 and f"../../{theirs}" in said and ids_of(mine) == [own]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "DROP TABLE baseline; CREATE VIEW baseline AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 "
            "FROM n) SELECT id, '' AS utc, '' AS name, '' AS campaign_id, '' AS note, '' AS row_sha256 FROM n",
            "its baseline is not a table",
        ),
        ("CREATE TRIGGER t AFTER INSERT ON pair BEGIN DELETE FROM request; END", "trigger"),
        ("ALTER TABLE probe ADD COLUMN more AS (subject || subject)", "probe does not have a store's columns"),
        ("UPDATE alembic_version SET version_num = '9999'", "newer version"),
    ],
)
def test_a_schema_that_acts_is_refused_before_anything_is_asked_of_it(stores, capsys, change, told):
    mine, own, other, _ = stores
    with closing(sqlite3.connect(other)) as connection:
        connection.executescript(change)
    code, said = import_other(mine, other, capsys)
    assert code == 6 and told in said and ids_of(mine) == [own], said


def test_what_takes_too_long_or_is_too_large_is_stopped(stores):
    *_, other, _ = stores
    with pytest.raises(UsageError, match="could not be read within"), opened(other, Limits(max_s=0.0)):
        pass
    with pytest.raises(UsageError, match="GiB"), opened(other, Limits(max_bytes=1)):
        pass


def test_a_good_campaign_comes_in_and_never_runs_its_commands_here(stores, capsys):
    mine, own, other, theirs = stores
    assert import_other(mine, other, capsys)[0] == 0
    assert set(ids_of(mine)) == {own, theirs}
    assert main(["verify", theirs, "--store", str(mine)]) == 0
    with pytest.raises(UsageError, match="was imported from"):
        resume(mine, theirs, strict=False)
    assert import_other(mine, other, capsys)[0] == 0, "once more appends nothing"


def test_rows_added_to_an_own_campaign_leave_it_ones_own(ram, capsys):
    mine, other = ram / "mine.sqlite", ram / "other.sqlite"
    own = made(mine)
    other.write_bytes(mine.read_bytes())
    with Store.open(other) as store:
        store.status(own, CampaignStatus.COMPLETE, "looked at again")
    assert import_other(mine, other, capsys)[0] == 0
    with Reader.open(mine) as reader:
        assert reader.imported_from(own) == ""


@pytest.mark.parametrize(
    ("table", "values", "told_by"),
    [
        ("campaign", {"plan_json": "{"}, "status"),
        ("campaign", {"plan_json": "{"}, "history"),
        ("campaign", {"created_utc": "9999-12-31T00:00:00+00:00"}, "status"),
        ("campaign_event", {"status": "triumphant"}, "status"),
        ("pair", {"delta_log": float("inf")}, "history"),
        ("pair", {"delta_log": "fast"}, "history"),
    ],
)
def test_a_damaged_campaign_hides_no_other(ram, capsys, table, values, told_by):
    path = ram / "store.sqlite"
    bad, good = made(path, 1), made(path, 2)
    forged(path, table, **values)  # the first row is the first campaign's
    for command in (["status"], ["history"], ["report", good], ["status", good], ["verify", good]):
        code = main([*command, "--store", str(path)])
        assert code in (0, 2), command
        told = capsys.readouterr()
        assert good in told.out
        if command == [told_by]:
            [line] = [line for line in (told.out + told.err).splitlines() if line.startswith(bad)]
            assert "damaged" in line
    assert main(["verify", bad, "--store", str(path)]) == 6
    if table == "campaign":
        with Reader.open(path) as reader, pytest.raises(IdentityMismatch, match="is damaged"):
            reader.resolve(bad)

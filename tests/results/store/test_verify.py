"""`verify` names the row that was changed, whichever part of it that was."""

import json
import sqlite3
from contextlib import closing

import pytest

from campaigns.errors import StoreWarning
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from campaigns.records import CampaignStatus
from orchestrator.cli import main
from results.store import database
from results.store.reader import Reader
from results.store.verify import Tally, verify
from results.store.writer import Store
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
    warmups=1,
)


@pytest.fixture
def path(ram):
    path = ram / "store.sqlite"
    with Store.open(path) as store:
        Driver(store, PLAN, lambda step, attempt: Script(Trajectory(30, 10, 19), 16.0), samples=True).run()
    return path


def findings(path):
    tally = Tally()
    with Reader.open(path) as reader:
        return list(verify(reader, reader.resolve("last"), tally)), tally


def test_an_untouched_campaign_holds(path):
    found, tally = findings(path)
    assert found == []
    assert tally.rounds == 6 * 10 and tally.rows > 15


@pytest.mark.parametrize(
    ("change", "row", "what"),
    [
        ("UPDATE round SET engine_ns = 1 WHERE request_id = 4 AND round_index = 3", "request id 4 ", "rounds_sha256"),
        ("DELETE FROM round WHERE request_id = 4 AND round_index = 10", "request id 4 ", "rounds_sha256"),
        ("UPDATE request_summary SET engine_round_p50_ns = 1 WHERE request_id = 5", "request id 5 ", "round_p50_ns"),
        ("UPDATE request_summary SET sum_accepted = 20 WHERE request_id = 5", "request id 5 ", "sum_accepted"),
        ("UPDATE request SET text = 'other' WHERE id = 3", "request id 3 ", "row_sha256"),
        ("UPDATE request SET token_ids = (SELECT zeroblob(0)) WHERE id = 3", "request id 3 ", "row_sha256"),
        ("UPDATE pair SET delta_log = -0.5 WHERE id = 2", "pair id 2 ", "delta_log"),
        ("UPDATE pair SET exactness = 3 WHERE id = 1", "pair id 1 ", "exactness"),
        ("UPDATE startup SET host = 'elsewhere'", "startup id 1 ", "row_sha256"),
        ("UPDATE device_sample SET power_mw = 1 WHERE id = 2", "device_sample id 2 ", "row_sha256"),
        ("UPDATE campaign SET fingerprint = '{}'", "campaign (", "row_sha256"),
        ("DELETE FROM request WHERE id = 6", "pair id 2 ", "missing"),
    ],
)  # fmt: skip
def test_a_changed_row_is_named(path, change, row, what):
    connection = sqlite3.connect(path)
    if "zeroblob" in change:
        import zlib

        connection.execute("UPDATE request SET token_ids = ? WHERE id = 3", (zlib.compress(b"\1\0\0\0"),))
    else:
        assert connection.execute(change).rowcount > 0
    connection.commit()
    connection.close()
    found, _ = findings(path)
    assert any(finding.row.startswith(row) and what in finding.what for finding in found), found


def test_the_command_ends_with_6_and_names_the_row(path, capsys):
    assert main(["verify", "last", "--store", str(path)]) == 0
    assert "every hash and summary holds" in capsys.readouterr().out
    connection = sqlite3.connect(path)
    connection.execute("UPDATE round SET accepted = 7 WHERE request_id = 4 AND round_index = 3")
    connection.commit()
    connection.close()
    assert main(["verify", "last", "--store", str(path)]) == 6
    assert "request id 4 (startup 0, startup_attempt 1, fixture alpha" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("form", "first"), [("md", "**NOT TO BE TRUSTED: "), ("csv", '"NOT TO BE TRUSTED: '), ("json", "{")]
)
def test_a_report_of_changed_rows_says_so_first_and_ends_with_6(path, capsys, form, first):
    assert main(["report", "last", "--store", str(path), "--format", form]) in (0, 2)
    assert "TRUSTED" not in capsys.readouterr().out
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE request SET end_ns = end_ns + 1 WHERE id = 3")
        connection.commit()
    assert main(["report", "last", "--store", str(path), "--format", form]) == 6
    told = capsys.readouterr()
    assert told.out.startswith(first) and "1 row of campaign" in told.err
    if form == "json":
        [row] = json.loads(told.out)["does_not_hold"]
        assert row.startswith("request id 3 ")


def test_what_an_immutable_reader_cannot_see_is_said(path, monkeypatch):
    with Store.open(path) as store, closing(sqlite3.connect(path)) as reader:  # keeps the log from being folded in
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM campaign").fetchone()
        store.status(Reader(path).resolve("last"), CampaignStatus.COMPLETE, "later")
        opened = database._opened

        def refuse(uri):
            if "immutable" not in uri:
                raise sqlite3.OperationalError("unable to open database file")
            return opened(uri)

        monkeypatch.setattr(database, "_opened", refuse)
        with pytest.warns(StoreWarning, match="newest rows are in a log"):
            database.read_only(path).close()


def dropped(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE look")


def overwritten(path):
    """The page that holds the campaign's own row."""
    with closing(sqlite3.connect(path)) as connection:
        [page] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'campaign'").fetchone()
        [size] = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x55" * size)


@pytest.mark.parametrize("damage", [dropped, overwritten])
@pytest.mark.parametrize("command", ["history", "report last", "verify last"])
def test_a_file_that_lost_a_table_or_a_page_is_damaged_whoever_reads_it(path, capsys, damage, command):
    damage(path)
    assert main([*command.split(), "--store", str(path)]) == 5
    assert "is damaged" in capsys.readouterr().err


def test_last_of_a_store_whose_only_campaign_is_damaged_names_it(path, capsys):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE campaign SET plan_json = '{}'")
    assert main(["report", "last", "--store", str(path)]) == 6
    assert "no campaign that can be read" in capsys.readouterr().err

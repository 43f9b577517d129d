"""`verify` names the row that was changed, whichever part of it that was."""

import sqlite3

import pytest

from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from orchestrator.cli import main
from results.store.reader import Reader
from results.store.verify import Tally, verify
from results.store.writer import Store
from results.transfer.synthetic import Driver, Script, Trajectory

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

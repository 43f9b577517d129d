"""What somebody wrote over is nobody's measurement, whoever reads it: lists go on without it, the others refuse."""

import sqlite3
from contextlib import closing

import pytest

from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from campaigns.reasons import Reason
from campaigns.records import Failure
from orchestrator.cli import main
from orchestrator.web.app import Pages
from results.history.evidence import evidence
from results.history.pace import GUESS, pace
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver

PLAN = CampaignPlan(
    name="unit",
    control=Arm("control"),
    candidate=Arm("candidate"),
    fixtures=(Fixture("alpha", "{}", (0,)),),
    server=ServerPlan("null"),
    startups=2,
    pairs=2,
    warmups=1,
)
PRINT = {"host.device_names": "scripted", "weights_sha256": "w", "server.args": "[]"}
CHANGES = [
    "UPDATE pair SET delta_log = -0.5 WHERE campaign_id = ?",
    "UPDATE request SET engine_decode_ns = engine_decode_ns / 2 WHERE id = 4",
    "UPDATE request SET text = CAST(x'ff' AS TEXT) WHERE id = 3",
    "UPDATE request SET end_ns = 9e999 WHERE id = 3",
    "UPDATE request_summary SET sum_accepted = 3 WHERE request_id = 4",
    "UPDATE startup SET calibration = NULL WHERE campaign_id = ?",
    "UPDATE failure SET message = 'nothing' WHERE campaign_id = ?",
    "DELETE FROM request WHERE id = 4",
    "DELETE FROM request_summary WHERE request_id = 4",
]


@pytest.fixture
def two(ram):
    """The first of two campaigns, and the store; only the first will be changed."""
    path, ids = ram / "store.sqlite", []
    with Store.open(path) as store:
        for number in (1, 2):
            driver = Driver(store, PLAN, lambda *_: Script(Trajectory(30, 10, 19), 16.0), PRINT, run_number=number)
            driver.run()
            ids.append(driver.campaign().campaign_id)
            store.failure(Failure(ids[-1], CREATED, Reason.STALL, "it said nothing", 0, 1))
    return *ids, path


def change(path, sql, of):
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, (of,) if "?" in sql else ()).rowcount


def told(path, capsys, *words):
    code = main([*words, "--store", str(path)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("sql", CHANGES)
def test_every_reader_across_campaigns_tells_the_same(two, capsys, sql):
    first, second, path = two
    change(path, sql, first)
    code, out, err = told(path, capsys, "history", "--format", "csv")
    assert (code, first in out, second in out) == (0, False, True) and f"{first}  damaged: " in err
    code, out, err = told(path, capsys, "trend", "alpha", "--format", "csv")
    assert (code, first in out, second in out) == (0, False, True)
    for words in (("compare", first, second), ("plan", "--from", first), ("export", first, "--format", "mlflow")):
        code, out, err = told(path, capsys, *words)
        assert (code, out) == (6, "") and f"campaign {first} is damaged" in err, words
    with Reader.open(path) as reader:
        assert [result.campaign_id for result in evidence(reader, "candidate").results] == [second]
        assert list(reader.damaged) == [first]
    with Reader.open(path) as reader:
        assert pace(reader, "w", "[]").source.startswith("12 recorded requests")


def test_an_untouched_store_is_read_whole(two, capsys):
    first, second, path = two
    code, out, err = told(path, capsys, "history", "--format", "csv")
    assert (code, err) == (0, "") and first in out and second in out
    assert told(path, capsys, "compare", first, second)[0] == 0
    with Reader.open(path) as reader:
        assert pace(reader, "w", "[]").source.startswith("24 recorded requests")
        assert pace(reader, "v", "[]") == GUESS


def test_a_page_of_changed_rows_says_so_first(two):
    first, second, path = two
    pages = Pages(path)
    assert "not to be trusted" not in pages.campaign({}, {"id": first})
    change(path, "UPDATE request SET end_ns = end_ns + 1 WHERE id = 3", first)
    assert "not to be trusted: 1 request row changed since recorded" in pages.campaign({}, {"id": first})
    assert "not to be trusted" in pages.report({}, {"id": first})
    assert "not to be trusted" not in pages.report({}, {"id": second})
    pages.close()

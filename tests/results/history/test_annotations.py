"""Tags, notes and the archive: appended, found again, and never a way to hide a result."""

import json
import shutil
import sqlite3

import pytest

from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from campaigns.records import CampaignStatus
from orchestrator.cli import main
from results.history.entries import Filter, history
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

PLAN = CampaignPlan(
    name="noted",
    control=Arm("a"),
    candidate=Arm("b", (("projection", "columns-32"),)),
    fixtures=(Fixture("f", "{}", (0,)),),
    server=ServerPlan("null"),
    startups=3,
    pairs=2,
    warmups=0,
)


def script(step, attempt):
    return Script(Trajectory(30, 10, 19), 14.4 if step.role is Role.CANDIDATE else 16.0)


@pytest.fixture(scope="module")
def made(module_ram):
    """One campaign that is complete, one that failed after a startup."""
    path = module_ram / "store.sqlite"
    with Store.open(path) as store:
        complete = Driver(store, PLAN, script, run_number=1).run()
        driver = Driver(store, PLAN, script, run_number=2, created_utc="2026-02-02T00:00:00+00:00")
        campaign = driver.campaign()
        failed = campaign.campaign_id
        store.begin(campaign)
        store.status(failed, CampaignStatus.RUNNING)
        driver.life(failed, 0, 1, blocks(PLAN, 0))
        store.status(failed, CampaignStatus.FAILED, "the server died")
    return path, complete, failed


@pytest.fixture
def store(made, ram):
    shutil.copy(made[0], ram / "store.sqlite")
    return ram / "store.sqlite", *made[1:]


@pytest.fixture
def ask(store, capsys):
    def asked(*words):
        code = main([*words, "--store", str(store[0])])
        said = capsys.readouterr()
        return code, said.out, said.err

    return asked


def test_tags_are_added_taken_away_and_found_by(store, ask):
    _, complete, failed = store
    assert ask("tag", complete, "nightly", "h200:a", "nightly", "--by", "ann") == (
        0,
        f"campaign {complete}: nightly, h200:a\n",
        "",
    )
    ask("tag", failed, "nightly")
    assert ask("tag", complete)[1] == f"campaign {complete}: nightly, h200:a\n"
    assert ask("tag", complete, "nightly", "--remove")[1] == f"campaign {complete}: h200:a\n"
    assert [row["campaign_id"] for row in json.loads(ask("history", "--tag", "nightly", "--format", "json")[1])] == [
        failed
    ]
    assert json.loads(ask("status", complete, "--format", "json")[1])[0]["tags"] == "h200:a"
    assert "[h200:a]" in ask("status")[1]
    assert json.loads(ask("query", "SELECT tags FROM v_campaign ORDER BY created_utc", "--format", "json")[1]) == [
        {"tags": "h200:a"},
        {"tags": "nightly"},
    ]
    code, _, err = ask("history", "--tag", "nigtly")
    assert code == 1 and "did you mean nightly" in err
    assert ask("tag", complete, "nightly", "--remove")[0] == 1
    assert ask("tag", complete, "two words")[0] == ask("tag", complete, "a,b")[0] == 1


def test_a_note_is_kept_with_who_wrote_it_and_stands_in_the_report(store, ask):
    _, complete, _ = store
    before = ask("report", complete)[1]
    ask("note", complete, "the fan was loud | <b>", "--by", "ann")
    after = ask("report", complete)[1]
    assert "ann: the fan was loud" in after and "fan" not in before
    assert json.loads(ask("report", complete, "--format", "json")[1])["campaign_notes"][0].endswith(
        "ann: the fan was loud | <b>"
    )
    assert "loud | <b>" not in ask("report", complete, "--format", "html")[1]
    assert ask("note", complete)[1].endswith("ann: the fan was loud | <b>\n")
    assert "note by ann: the fan was loud" in ask("status", complete)[1]
    assert ask("note", complete, " ")[0] == 1
    assert ask("verify", complete)[0] == 0


def test_what_gave_no_result_leaves_the_lists_and_comes_back(store, ask):
    path, complete, failed = store
    assert ask("archive", failed, "--reason", "a bad riser")[0] == 0
    for command in ("status", "history"):
        _, out, err = ask(command)
        assert failed not in out and complete in out and "1 archived campaign not listed" in err
        assert failed in ask(command, "--archived")[1]
    assert ask("report", failed)[0] in (0, 2) and "a bad riser" in ask("status", failed)[1]
    with Reader.open(path) as reader:
        assert failed not in list(history(reader).campaign_id)
        assert failed in list(history(reader, Filter(archived=True)).campaign_id)
    assert ask("archive", failed, "--restore", "--reason", "it was the cable")[0] == 0
    assert failed in ask("status")[1]
    assert ask("archive", failed, "--restore", "--reason", "again")[0] == 1


def test_a_result_cannot_be_hidden(store, ask):
    path, complete, failed = store
    code, _, err = ask("archive", complete, "--reason", "unwelcome")
    assert code == 1 and "a result stays" in err
    ask("archive", failed, "--reason", "for now")
    with Store.open(path) as writer:  # resumed and finished meanwhile
        writer.status(failed, CampaignStatus.COMPLETE)
    assert failed in ask("status")[1] and failed in ask("history")[1]


def test_they_travel_with_the_campaign_and_every_row_is_verified(store, ask, ram):
    path, complete, _ = store
    ask("tag", complete, "seen")
    other = ram / "other.sqlite"
    assert main(["import", str(path), "--store", str(other)]) == 0
    with Reader.open(other) as reader:
        assert reader.tags() == {complete: ["seen"]}
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE annotation SET text = 'forged'")
    code, out, _ = ask("verify", complete)
    assert code == 6 and "annotation" in out

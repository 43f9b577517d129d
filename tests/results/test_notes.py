"""What stands round a report's tables: how many startups it is over, failures told once, what a page makes of marks."""

import pytest

from campaigns.plan import blocks
from campaigns.records import CampaignStatus, Failure, Reason
from orchestrator.cli import main
from results.health import told_once
from results.store import Store
from results.synthetic import Driver
from tests.results.test_report import PLAN, report, script

DIED = "the server died during a request: exit code -9"


@pytest.fixture
def stopped(ram):
    """One fixture has two startups, the other one; a dead server that two places told of, and a second server error."""
    path = ram / "store.sqlite"
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        made = driver.campaign()
        store.begin(made)
        store.status(made.campaign_id, CampaignStatus.RUNNING)
        driver.life(made.campaign_id, 0, 1, blocks(PLAN, 0))
        driver.life(made.campaign_id, 1, 1, blocks(PLAN, 1)[:1])
        key = blocks(PLAN, 1)[1].keys[0]
        for utc, message, about in (
            ("2026-01-02T03:00:02+00:00", f"startup 2: {DIED}", None),
            ("2026-01-02T03:00:01+00:00", DIED, key),
        ):
            store.failure(Failure(made.campaign_id, utc, Reason.SERVER_DIED, message, 1, 1, about))
        store.status(made.campaign_id, CampaignStatus.HELD, "by hand")
    return path


def test_the_head_says_how_many_startups_each_fixture_has(stopped, ram):
    assert "over 1 to 2 startups of each fixture (1 startup of all) and 15 admissible of 15 pairs" in report(stopped)
    with Store.open(ram / "whole.sqlite") as store:
        Driver(store, PLAN, script).run()
    assert "over 3 startups and 30 admissible of 30 pairs" in report(ram / "whole.sqlite")


def test_a_dead_server_is_told_once(stopped, capsys):
    assert report(stopped).count(DIED) == 1
    assert main(["status", "last", "--store", str(stopped)]) == 0
    assert capsys.readouterr().out.count(DIED) == 1


def test_equal_failures_of_two_requests_are_two():
    keys = blocks(PLAN, 0)[0].keys
    made = [Failure("c", f"2026-01-0{i + 1}", Reason.THROTTLE, "power cap", 0, 1, keys[i]) for i in (1, 0)]
    assert told_once(made) == made[::-1]  # and in the order of time


def test_status_is_in_the_order_of_time(stopped, capsys):
    assert main(["status", "last", "--store", str(stopped)]) == 0
    times = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  20")]
    assert len(times) == 3 and times == sorted(times)


def test_a_page_shows_code_spans_as_elements(stopped):
    page = report(stopped, "html")
    notes = page[page.index("<h2>Notes</h2>") :]
    assert "`" not in notes and "<code>" in notes

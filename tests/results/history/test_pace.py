"""What recorded campaigns say of the time of the next one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from results.history.pace import GUESS, pace
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.synthetic import CREATED, Driver
from tests.results.history.test_history import HOST, PLAN, script

LIKE = HOST | {"weights_sha256": "ab" * 32, "server.args": "[]"}
ONCE_S, LIVED_S, PAUSE_S = 20, 700, 30


def after(seconds: float) -> str:
    return (datetime.fromisoformat(CREATED) + timedelta(seconds=seconds)).isoformat()


class Lasting(Driver):
    """Startups that take LIVED_S, the first of them ONCE_S after the campaign's beginning."""

    def start(self, campaign_id: str, startup: int, attempt: int) -> None:
        began = ONCE_S + startup * (LIVED_S + PAUSE_S)
        self.created_utc = after(began)
        super().start(campaign_id, startup, attempt)
        self.created_utc = after(began + LIVED_S)


def test_the_pace_of_a_campaign_is_the_time_it_took(ram):
    plan = replace(PLAN, startups=2, calibrate_s=4.0)
    with Store.open(ram / "c.sqlite") as store:
        campaign_id = Lasting(store, plan, script(0.9), fingerprint=LIKE).run()
    with Reader.open(ram / "c.sqlite") as reader:
        found = pace(reader, LIKE["weights_sha256"], LIKE["server.args"])
        requests = len(list(reader.requests(campaign_id)))
        assert pace(reader, "cd" * 32, "[]") == GUESS
    assert found.once_s == pytest.approx(ONCE_S, abs=0.01)
    told_s = requests * found.request_s + plan.startups * (found.startup_s + plan.calibrate_s)
    assert told_s == pytest.approx(plan.startups * LIVED_S, abs=0.1)
    assert found.startup_s > 1.5  # what the servers took to be ready


def test_a_store_of_another_clock_says_no_less_than_the_servers_took(ram):
    with Store.open(ram / "c.sqlite") as store:
        Driver(store, PLAN, script(0.9), fingerprint=LIKE).run()
    with Reader.open(ram / "c.sqlite") as reader:
        found = pace(reader, LIKE["weights_sha256"], LIKE["server.args"])
    assert (found.startup_s, found.once_s) == (1.5, 0.0)

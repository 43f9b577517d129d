"""What recorded campaigns say of the time of the next one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from campaigns.errors import Exit
from campaigns.order import blocks, life_warmups
from campaigns.plan import Fixture, Phase
from results.history.forecast import costs
from results.history.pace import GUESS, pace
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver
from tests.results.history.test_history import HOST, PLAN, run, script

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
        phases = [stored.request.phase for stored in reader.requests(campaign_id)]
        assert pace(reader, "cd" * 32, "[]") == GUESS
    assert found.once_s == pytest.approx(ONCE_S, abs=0.01)
    warmups = phases.count(Phase.WARMUP)
    told_s = found.startups_s(plan.startups, len(phases) - warmups, warmups, plan.calibrate_s)
    assert told_s == pytest.approx(plan.startups * LIVED_S, abs=0.1)
    assert found.startup_s > 1.5  # what the servers took to be ready


def test_a_store_of_another_clock_says_no_less_than_the_servers_took(ram):
    with Store.open(ram / "c.sqlite") as store:
        Driver(store, PLAN, script(0.9), fingerprint=LIKE).run()
    with Reader.open(ram / "c.sqlite") as reader:
        found = pace(reader, LIKE["weights_sha256"], LIKE["server.args"])
    assert (found.startup_s, found.once_s) == (1.5, 0.0)


class World(Driver):
    """What a server on an H200 showed: 8 s before its campaign's first startup, 9 to start and 2 to stop; ten more for
    its first answer and one for the other arm's; 0.12 behind every request."""

    def start(self, campaign_id, startup, attempt):
        self.met = set()
        self.created_utc = self._after(8.0 if startup == 0 else 1.0)
        super().start(campaign_id, startup, attempt)
        self._after(9.0 + self.plan.calibrate_s)

    def block(self, campaign_id, block, startup_attempt, *, stop_after=None):
        super().block(campaign_id, block, startup_attempt, stop_after=stop_after)
        self.created_utc = after(self._clock_ns * 1e-9 - 1000 + 2.0)  # of the startup, if this is its last

    def request(self, campaign_id, step, startup_attempt, block_attempt):
        late_s = 0.0 if step.role in self.met else 1.0 if self.met else 10.0
        self.met.add(step.role)
        scripts, self.scripts = self.scripts, self._late(late_s)
        made = super().request(campaign_id, step, startup_attempt, block_attempt)
        self.scripts = scripts
        self._after(0.12)
        return made

    def _late(self, seconds):
        scripts = self.scripts
        return lambda *given: replace(scripts(*given), ttft_ms=scripts(*given).ttft_ms + 1000 * seconds)

    def _after(self, seconds):
        self._clock_ns += round(seconds * 1e9)
        return after(self._clock_ns * 1e-9 - 1000)


def answered(_step, _attempt):
    return Script(Trajectory(61, 30, 30), 13.0, ttft_ms=150.0)


def corpus(cases, **other):
    fixtures = tuple(Fixture(f"case-{n}", "{}", (0,)) for n in range(cases))
    plan = replace(PLAN, name="corpus", corpus="ab" * 32, fixtures=fixtures, startups=1, pairs=1, calibrate_s=1.0)
    return replace(plan, **other)


def took_s(store, plan):
    """Its id, and the seconds from its beginning to the end of its last startup."""
    driver = World(store, plan, answered, fingerprint=LIKE)
    name = driver.run()
    return name, (datetime.fromisoformat(driver.created_utc) - datetime.fromisoformat(CREATED)).total_seconds()


def told_s(path, plan):
    every = [block for startup in range(plan.startups) for block in blocks(plan, startup)]
    warmups = 2 * (sum(block.warmups for block in every) + plan.startups * life_warmups(plan))
    with Reader.open(path) as reader:
        found = pace(reader, LIKE["weights_sha256"], LIKE["server.args"], plan.name)
        return found.once_s + found.startups_s(
            plan.startups, sum(len(block.steps) for block in every), warmups, plan.calibrate_s
        )


def test_a_first_answer_of_ten_seconds_is_counted_once_a_startup(ram):
    """Six prompts tell the time of 148. Spread over requests, first answers would double it; left out, take 5 % off."""
    with Store.open(ram / "six.sqlite") as store:
        took_s(store, corpus(6))
    with Store.open(ram / "whole.sqlite") as store:
        _, took = took_s(store, corpus(148, startups=2))
    assert told_s(ram / "six.sqlite", corpus(148, startups=2)) == pytest.approx(took, rel=0.01)


def test_what_campaigns_of_the_same_name_took_counts_before_others(ram):
    long = replace(PLAN, name="curve", startups=1)
    with Store.open(ram / "c.sqlite") as store:
        _, took = took_s(store, corpus(22))
        World(store, long, lambda *_: Script(Trajectory(21, 10, 10), 13.0, ttft_ms=40_000.0), fingerprint=LIKE).run()
    assert told_s(ram / "c.sqlite", corpus(22)) == pytest.approx(took, rel=0.01)
    assert told_s(ram / "c.sqlite", corpus(22, name="another")) > 2 * took


def test_pauses_are_a_cost_of_pairs(ram):
    """`--from` of one pair a startup foretells twelve."""
    with Store.open(ram / "c.sqlite") as store:
        few, _ = took_s(store, replace(PLAN, startups=2, pairs=1, calibrate_s=1.0))
    with Store.open(ram / "d.sqlite") as store:
        _, took = took_s(store, replace(PLAN, startups=3, pairs=12, calibrate_s=1.0))
    with Reader.open(ram / "c.sqlite") as reader:
        assert 3600 * costs(reader, few).hours(startups=3, pairs=12) == pytest.approx(took, rel=0.05)


def test_a_campaign_of_one_startup_tells_its_time_and_no_precision(ram, capsys):
    with Store.open(ram / "c.sqlite") as store:
        name, took = took_s(store, corpus(22))
    assert run("plan", "--from", name, store=ram / "c.sqlite") == 0
    told = capsys.readouterr().out
    assert "no precision can be told" in told and f"1 startup of 1 pair, about {took / 60:.1f} min" in told
    assert run("plan", "--from", name, "--half-width", "0.1", store=ram / "c.sqlite") == Exit.NOTHING_ADMISSIBLE

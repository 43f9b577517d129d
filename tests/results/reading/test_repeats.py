"""A server that is faster on what it has answered before: found, told in the report, and gone with fresh seeds."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from campaigns.errors import Exit
from campaigns.judging.repeats import LEVEL, remembering
from campaigns.judging.verdicts import Verdict
from campaigns.order import blocks
from campaigns.plan import Fixture, PairKey, Role, Sampling, Seeds, StartupMode
from campaigns.reasons import Reason
from campaigns.records import Failure
from campaigns.seeds import measured_seed, warmup_seed
from results.history.entries import history
from results.reading.effects import effects
from results.reading.repeats import campaign_repeats
from results.reading.summary import summarise
from results.reports.report import render
from results.store.hashing import row_sha256
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver
from tests.results.reports.test_report import PLAN

LIVES = replace(
    PLAN, name="memory", fixtures=(Fixture("short", "{}", (7,)),), pairs=6, startup_mode=StartupMode.CO_RESIDENT
)
MEMORY = 0.87  # of the time where prompt and seed came before: the false 13 %


class World:
    """Round times of two servers; those in `remember` are faster on a prompt and seed that they met."""

    def __init__(self, plan, remember, *, slower=1.0, cold=1.0, noise=0.001, seed=1):
        self.plan, self.remember, self.slower, self.cold, self.noise = plan, remember, slower, cold, noise
        self.met, self.rng = set(), np.random.default_rng(seed)

    def __call__(self, step, attempt):
        warmup = step.order_in_pair < 0
        sent = warmup_seed(self.plan, step.key, step.key.repeat) if warmup else measured_seed(self.plan, step.key)
        known = sent if self.plan.sampling.temperature else 0
        server = "" if self.plan.startup_mode is StartupMode.SWITCH else step.role
        life, prompt = (step.key.startup, server), (step.key.startup, server, step.key.fixture, known)
        ms = 16.0 * (self.slower if step.role is Role.CANDIDATE else 1.0) * np.exp(self.noise * self.rng.normal())
        ms *= MEMORY if step.role in self.remember and prompt in self.met else 1.0
        ms *= 1.0 if life in self.met else self.cold
        self.met |= {life, prompt}
        return Script(Trajectory(31, 10, 20), ms, 100.0, token_seed=sent)


def measured(path, plan, world):
    with Store.open(path) as store:
        Driver(store, plan, world).run()
    with Reader.open(path) as reader:
        name = reader.resolve("last")
        return summarise(reader, name), render(reader, name, "md")


@pytest.mark.parametrize("remember", [(Role.CANDIDATE,), (Role.CONTROL, Role.CANDIDATE)])
def test_a_memory_decides(ram, remember):
    found, text = measured(ram / "s", LIVES, World(LIVES, remember))
    assert found.verdict is Verdict.REPEAT_SENSITIVE and found.groups[0].judgement.verdict is Verdict.REPEAT_SENSITIVE
    assert "candidate: a prompt and seed that it has answered before is decoded in 1" in found.judgement.because
    assert ("control: a prompt" in found.judgement.because) == (Role.CONTROL in remember)
    assert found.exit_code() is Exit.COMPLETE and found.exit_code(strict=True) is Exit.STRICT
    assert "| repeats of a prompt and seed against the first (candidate) | -1" in text
    with Reader.open(ram / "s") as reader:
        assert history(reader).verdict.tolist() == ["repeat-sensitive"]


@pytest.mark.parametrize(("remember", "word"), [((), "inconclusive"), (tuple(Role), "repeat-sensitive")])
def test_a_history_asks_for_repeats_whatever_the_word_would_be(ram, remember, word):
    """Startups that do not agree say nothing: a memory is told all the same, in every row as in the report."""
    plan = replace(LIVES, fixtures=(Fixture("short", "{}", (7, 8)), Fixture("long", "{}", (7,))), pairs=3)
    world, factors = World(plan, remember), (1, 1.06, 0.95)

    def moved(step, attempt):
        made = world(step, attempt)
        return replace(made, round_ms=made.round_ms * factors[step.key.startup] ** (step.role is Role.CANDIDATE))

    found, _ = measured(ram / "s", plan, moved)
    with Reader.open(ram / "s") as reader:
        rows = history(reader)
    assert rows.verdict.tolist() == [group.judgement.verdict.value for group in found.groups] == [word] * 3


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"startup_mode": StartupMode.SWITCH},
        {"fixtures": (Fixture("short", "{}", (7, 8)), Fixture("long", "{}", (7,)))},
        {"sampling": Sampling(temperature=0.0)},
        {"warmups": 0},
    ],
)
@pytest.mark.parametrize("engine", [pytest.param(True, marks=pytest.mark.acceptance), False])
def test_one_question_over_campaigns_tells_what_each_report_tells(ram, changed, engine):
    """A repeated life, engines that keep no time, and an excluded pair included."""
    plan = replace(LIVES, pairs=3, **changed)
    with Store.open(ram / "s") as store:
        for seed in (1, 2):
            driver = Driver(store, replace(plan, seed=seed), World(plan, (Role.CANDIDATE,), seed=seed))
            name = driver.run()
            if seed == 2:
                driver.life(name, 1, 2, blocks(plan, 1))
                key = PairKey(0, plan.fixtures[0].id, 7, 0)
                store.failure(Failure(name, CREATED, Reason.OPERATOR, "struck", key=key))
    if not engine:
        with closing(sqlite3.connect(ram / "s")) as raw, raw:
            raw.row_factory = sqlite3.Row
            raw.execute("UPDATE request SET engine_decode_ns = NULL")
            hashes = [(row_sha256(dict(row)), row["id"]) for row in raw.execute("SELECT * FROM request")]
            raw.executemany("UPDATE request SET row_sha256 = ? WHERE id = ?", hashes)
    with Reader.open(ram / "s") as reader:
        plans = {each.campaign_id: json.loads(each.plan_json) for each in reader.campaigns()}
        told = campaign_repeats(reader, plans, effects(reader, plans))
        for name in plans:
            reports = {group.id: group.repeats for group in summarise(reader, name).groups}
            assert {group: found for group, found in told[name].items() if found} == {
                group: found for group, found in reports.items() if found
            }


def test_fresh_seeds_ask_for_each_once(ram):
    plan = replace(LIVES, seeds=Seeds.FRESH)
    found, text = measured(ram / "s", plan, World(plan, (Role.CANDIDATE,)))
    assert found.verdict is Verdict.EQUIVALENT and "repeats of a prompt and seed against" not in text
    assert found.groups[0].n_prompts == 6  # six seeds, the same in every startup
    assert found.determinism[0].n_prompts == 6 and found.determinism[0].n_repeated == 0


def test_seeds_that_decide_nothing_are_told_where_they_count_as_prompts(ram):
    greedy = {"sampling": Sampling(temperature=0.0)}
    for number, (changed, told) in enumerate([({**greedy, "seeds": Seeds.FRESH}, 1), (greedy, 0), ({}, 0)]):
        plan = replace(LIVES, startups=1, **changed)
        found, _ = measured(ram / f"s{number}", plan, World(plan, ()))
        assert sum("at temperature 0 a seed decides nothing" in note for note in found.missing) == told


def test_without_a_memory_nothing_is_told(ram):
    found, text = measured(ram / "s", LIVES, World(LIVES, (), slower=0.95, cold=3.0))
    assert found.verdict is Verdict.FASTER and "answered before" not in text


def test_a_slower_candidate_stays_slower(ram):
    found, _ = measured(ram / "s", LIVES, World(LIVES, (Role.CONTROL,)))
    assert found.verdict is Verdict.SLOWER and found.exit_code() is Exit.SLOWER
    assert any("control: a prompt and seed" in note for note in found.judgement.notes)


def test_one_server_of_both_arms_remembers_for_both(ram):
    plan = replace(LIVES, startup_mode=StartupMode.SWITCH)
    found, _ = measured(ram / "s", plan, World(plan, tuple(Role)))
    assert found.verdict is Verdict.REPEAT_SENSITIVE and "the server of both arms: a prompt" in found.judgement.because


def test_two_startups_only_show_it(ram):
    plan = replace(LIVES, startups=2)
    found, text = measured(ram / "s", plan, World(plan, (Role.CANDIDATE,)))
    assert found.verdict is Verdict.SCREEN and "(candidate) | -1" in text


@pytest.mark.parametrize("changed", [{"warmups": 0}, {"sampling": Sampling(temperature=0.0)}])
def test_a_cold_start_is_no_memory(ram, changed):
    """The first answer came from a cold server, or had come in a warm-up: a trend would be of either."""
    plan = replace(LIVES, **changed)
    found, text = measured(ram / "s", plan, World(plan, (), slower=0.95, cold=3.0))
    assert found.verdict is Verdict.FASTER and "answered before" not in text


def test_every_pair_has_one_seed_and_every_warmup_another():
    for seeds, different in ((Seeds.FIXED, 1), (Seeds.FRESH, 6)):
        plan = replace(LIVES, seeds=seeds)
        first, second = (blocks(plan, startup)[0] for startup in (0, 1))
        sent = [measured_seed(plan, key) for key in first.keys]
        assert sent == [measured_seed(plan, key) for key in second.keys] and len(set(sent)) == different
        warm = {warmup_seed(plan, first.keys[0], turn) for turn in range(5)}
        assert len(warm) == 5 and not warm & set(sent) and all(0 <= seed < 2**31 for seed in (*warm, *sent))


def test_noise_is_seldom_a_memory():
    """Half a percent in each request, one first against five repeats: at most the half of 1 % that its level allows."""
    rng = np.random.default_rng(3)
    for n in (3, 5, 8):
        first, repeats = rng.normal(0, 0.005, (2000, n)), rng.normal(0, 0.005, (2000, n, 5))
        trends = np.median(repeats, axis=2) - first
        told = sum(bool(remembering({"control": dict(enumerate(row))}, 0.0)) for row in trends.tolist())
        assert told / 2000 < 2 * (1 - LEVEL) / 2

"""Golden reports of campaigns whose truth is known and whose verdict an older methodology missed.

A golden file changes with the report on purpose: run this file with `--golden`, then read the difference.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from campaigns.errors import Exit
from campaigns.judging.verdicts import Evidence, Verdict
from campaigns.plan import Fixture, Role
from results.history.entries import Filter, history
from results.reading import summary
from results.reading.summary import summarise
from results.reports import for_ci
from results.reports.headline import headline
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver
from tests.results.reports.test_report import PLAN

GOLDEN = Path(__file__).with_name("golden")
SHORT = Trajectory(31, 10, 20)


def scripts(truth, *, order=0.0, between=0.001, within=0.003, seed=5):
    """Times with the given true effect of each fixture, and an arm that gains or loses by going first."""
    rng = np.random.default_rng(seed)
    drawn = {}

    def noise(*key, sd):
        return drawn.setdefault(key, sd * rng.standard_normal())

    def script(step, attempt):
        key, candidate = step.key, step.role is Role.CANDIDATE
        effect = 0.0
        if candidate:
            first = step.order_in_pair == 1
            effect = truth[key.fixture] + noise(key.startup, sd=between) + (order / 2 if first else -order / 2)
            effect += noise(key.startup, key.fixture, key.repeat, sd=within)
        return Script(SHORT, 16.0 * np.exp(effect), 100.0, token_seed=1)

    return script


def store(path, plan, made, **options):
    with Store.open(path) as writer:
        return Driver(writer, plan, made, **options).run()


def found(path):
    with Reader.open(path) as reader:
        return summarise(reader, reader.resolve("last"))


ORD8 = replace(PLAN, name="ord8", fixtures=(Fixture("short", "{}", (0,)),), startups=8, pairs=6)
FX8 = replace(PLAN, name="fx8", fixtures=tuple(Fixture(f"f{i}", "{}", (i,)) for i in range(8)), startups=3, pairs=6)
TRUTHS = {"ord8": {"short": 0.05}, "fx8": {f"f{i}": -0.02 - 0.003 * i for i in range(8)}}


@pytest.fixture(scope="module")
def ord8(module_ram):
    store(module_ram / "ord8.sqlite", ORD8, scripts(TRUTHS["ord8"], order=0.005))
    return module_ram / "ord8.sqlite"


@pytest.fixture(scope="module")
def fx8(module_ram):
    store(module_ram / "fx8.sqlite", FX8, scripts(TRUTHS["fx8"], between=0.002, within=0.008))
    return module_ram / "fx8.sqlite"


@pytest.mark.parametrize("name", ["ord8", "fx8"])
def test_golden(name, request):
    path = request.getfixturevalue(name)
    with Reader.open(path) as reader:
        text = render(reader, reader.resolve("last"), "md")
    golden = GOLDEN / f"{name}.md"
    if request.config.getoption("--golden", default=False):
        golden.write_text(text)
    assert text == golden.read_text()


def test_a_headline_never_calls_faster_what_one_fixture_made_slower(ram):
    truth = {f"f{i}": -0.03 for i in range(3)} | {"slow": 0.06}
    plan = replace(PLAN, fixtures=tuple(Fixture(name, "{}", (0,)) for name in truth), startups=6, pairs=4)
    store(ram / "one.sqlite", plan, scripts(truth, between=0.0005, within=0.0005))
    summary = found(ram / "one.sqlite")
    assert summary.verdict is Verdict.SLOWER and summary.judgement.effect < 0
    assert headline(summary).sentence.startswith("slower (0.7")
    assert summary.judgement.because.startswith("1 of 4 fixtures slower (slow: effect +6.")


def test_an_order_effect_does_not_hide_a_regression(ord8):
    summary = found(ord8)
    assert summary.verdict is Verdict.SLOWER and summary.exit_code() is Exit.SLOWER
    assert any("order contrast" in note and "the verdict stands" in note for note in summary.judgement.notes)


def test_eight_fixtures_say_more_than_one(fx8):
    summary = found(fx8)
    assert summary.verdict is Verdict.FASTER and summary.judgement.interval.high < -0.02
    widest = max(group.judgement.floor.value for group in summary.groups)
    assert summary.judgement.floor.value < widest
    assert all(group.judgement.adjusted.level >= 0.95 for group in summary.groups)


@pytest.mark.parametrize(("name", "old"), [("ord8", Verdict.ORDER_SENSITIVE), ("fx8", Verdict.INCONCLUSIVE)])
def test_an_older_campaign_keeps_its_verdict(ram, monkeypatch, name, old):
    monkeypatch.setattr("results.transfer.synthetic.METHODOLOGY_VERSION", 2)
    plan, made = (ORD8, scripts(TRUTHS["ord8"], order=0.005))
    if name == "fx8":  # one fixture is wide enough to hide the others
        truth = TRUTHS["fx8"]
        plan, made = FX8, scripts(truth, between=0.002, within=0.03)
    store(ram / "old.sqlite", plan, made)
    summary = found(ram / "old.sqlite")
    assert summary.campaign.methodology_version == 2 and summary.verdict is old
    with Reader.open(ram / "old.sqlite") as reader:
        assert set(history(reader, Filter()).verdict) == {group.judgement.verdict.value for group in summary.groups}


def test_a_mean_says_of_how_many_fixtures_it_is(ram):
    plan = replace(PLAN, fixtures=tuple(Fixture(f"f{i}", "{}", (i,)) for i in range(3)), startups=5)
    truth = dict.fromkeys(("f0", "f1", "f2"), -0.02)
    made = scripts(truth)

    def inexact(step, attempt):
        differs = step.key.fixture == "f1" and step.role is Role.CANDIDATE
        return replace(made(step, attempt), token_seed=7 if differs else 1)

    store(ram / "partial.sqlite", plan, inexact)
    summary = found(ram / "partial.sqlite")
    assert summary.judgement.because.startswith("geometric mean of 2 of 3 fixtures (without f1), equal weights")
    assert summary.evidence is Evidence.PARTIAL and summary.exit_code() is Exit.SLOWER


def test_every_verdict_is_told_apart_and_explained():
    """A new one is decided, or fails under --strict, or there was nothing to judge; and the documentation has it."""
    nothing = (Verdict.INADMISSIBLE, Verdict.NOTHING_MEASURED)
    assert sorted([*for_ci._DECIDED, *summary._UNDECIDED, *nothing]) == sorted(Verdict)
    told = (Path(__file__).parents[3] / "docs/statistics.md").read_text()
    assert [verdict for verdict in Verdict if verdict.value not in told] == []

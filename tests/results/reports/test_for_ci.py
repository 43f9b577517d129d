"""A comment that fits and cannot be markup, and JUnit's XML as its readers read it."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus
from results.reading.summary import summarise
from results.reports.for_ci import MAX_LINES, github, junit
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

FACTORS = {"quick": 0.9, "slow": 1.1, "same": 1.0, "odd": 0.9, "bad": 0.9}
PLAN = CampaignPlan(
    name="ci\x07 & <co>",
    control=Arm("a"),
    candidate=Arm("@team [b](http://c)", (("projection", "columns-32"),)),
    fixtures=tuple(Fixture(name, "{}", (0,)) for name in FACTORS),
    server=ServerPlan("null"),
    startups=3,
    pairs=4,
)


def made(path, plan=PLAN):
    def script(step, attempt):
        candidate, name = step.role is Role.CANDIDATE, step.key.fixture.split()[0]
        ms = 16.0 * (FACTORS[name] if candidate else 1.0)
        made = Script(Trajectory(30, 10, 19), ms, token_seed=9 if name == "odd" and candidate else 1)
        return replace(made, admissible=False, reasons=(Reason.CACHE_HIT,)) if name == "bad" else made

    with Store.open(path) as store:
        Driver(store, plan, script).run()
    return path


@pytest.fixture(scope="module")
def rendered(module_ram):
    path = made(module_ram / "store.sqlite")
    with Reader.open(path) as reader:
        return {format: render(reader, reader.resolve("last"), format) for format in ("github", "junit")}


def test_a_comment_fits_and_holds_no_markup_of_a_name(rendered):
    text = rendered["github"]
    lines = text.splitlines()
    assert len(lines) <= MAX_LINES
    assert r"\@team \[b\](http://c)" in lines[0]
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ")][2:] == [f"| {name}" for name in FACTORS]


def test_a_comment_of_many_fixtures_fits_too(ram):
    many = replace(PLAN, fixtures=tuple(Fixture(f"quick {i}", "{}", (0,)) for i in range(12)), pairs=2)
    with Reader.open(made(ram / "many.sqlite", many)) as reader:
        summary = summarise(reader, reader.resolve("last"))
    text = github(summary)
    assert len(text.splitlines()) <= MAX_LINES and "| 5 more |" in text
    loud = replace(summary, flags={f"flag {i}": 1 for i in range(9)})
    assert len(github(loud).splitlines()) <= MAX_LINES


def test_a_campaign_that_ended_early_passes_nowhere(tmp_path):
    path = made(tmp_path / "s", replace(PLAN, fixtures=PLAN.fixtures[:1]))
    with Reader.open(path) as reader:
        whole = summarise(reader, reader.resolve("last"))
    held = replace(whole, status=CampaignStatus.HELD, status_reason="lunch")
    suite = ElementTree.fromstring(junit(held))
    assert [(case.get("name"), [child.tag for child in case]) for case in suite] == [
        ("campaign complete", ["error", "system-out"]),
        ("quick", ["system-out"]),
    ]
    assert suite[0][0].get("message") == "the campaign is held: lunch"
    assert (suite.get("tests"), suite.get("errors")) == ("2", "1")
    assert ElementTree.fromstring(junit(whole)).get("errors") == "0"


@pytest.mark.parametrize(("name", "kind"), [("quick", ""), ("slow", "failure"), ("odd", "failure"), ("bad", "error")])
def test_junit_tells_what_failed(rendered, name, kind):
    suite = ElementTree.fromstring(rendered["junit"])
    cases = {case.get("name"): [child.tag for child in case if child.tag != "system-out"] for case in suite}
    assert cases[name] == ([kind] if kind else [])
    failed, errors = (sum(tags == [tag] for tags in cases.values()) for tag in ("failure", "error"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", str(failed), str(errors))

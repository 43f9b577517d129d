"""What a look sees, and that a history judges by the same host and drift as a report."""

from dataclasses import replace

import pandas as pd
import pytest

from campaigns.judging.verdicts import Evidence
from campaigns.plan import Fixture, Role
from campaigns.records import DeviceSample, Look
from results.history.entries import history
from results.reading.looks import judgeable, n_seen
from results.reading.summary import summarise
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver
from tests.results.reports.test_report import PLAN

FIVE = replace(PLAN, fixtures=(Fixture("short", "{}", (0,)),), startups=5, pairs=4)


def script(drift):
    def made(step, attempt):
        level = 16.0 * (1 + drift * step.key.repeat) * (1 + 0.0001 * step.key.startup)
        return Script(Trajectory(31, 10, 20), level * (0.99 if step.role is Role.CANDIDATE else 1.0), token_seed=1)

    return made


@pytest.mark.parametrize(("load", "drift", "said"), [(0.5, 0.0, ""), (3.25, 0.0, "reached 3.25"), (0.5, 0.02, "drift")])
def test_a_history_knows_of_load_and_drift_what_a_report_knows(ram, monkeypatch, load, drift, said):
    monkeypatch.setattr(
        Driver, "_sample", lambda _, r: DeviceSample(r.send_ns, "cpu-ab", 2100, None, None, None, None, 10**9, load)
    )
    with Store.open(ram / "c.sqlite") as store:
        driver = Driver(store, FIVE, script(drift), samples=True)
        campaign = driver.campaign
        monkeypatch.setattr(driver, "campaign", lambda: replace(campaign(), provenance={"host": {"num_cpus": 2}}))
        driver.run()
    with Reader.open(ram / "c.sqlite") as reader:
        judgement = summarise(reader, reader.resolve("last")).judgement
        [row] = history(reader).to_dict("records")
    expected = Evidence.INDICATIVE if said else Evidence.SUPPORTED
    assert said in " ".join(judgement.notes)
    assert (row["evidence"], row["verdict"]) == (judgement.evidence, judgement.verdict) == (expected, "faster")


def pairs(*counts):
    return pd.DataFrame({"startup": [s for s, count in enumerate(counts) for _ in range(count)]}, dtype=int)


def look(n, decided):
    return Look("c", n, "", "faster", decided)


PLAIN = {"startups": 9, "pairs": 4, "corpus": "", "fixtures": [{"seeds": [0]}], "min_startups": 3}


@pytest.mark.parametrize(
    ("counts", "looks", "seen"),
    [
        ((), (), 0),
        ((4, 4, 4, 4), (), 4),
        ((4, 4, 4, 2), (look(3, False),), 3),  # one that runs, or was killed
        ((4, 4, 2, 4, 4), (), 2),  # startups behind an open one
        ((4, 4, 4, 4, 4), (look(3, False), look(4, True)), 4),  # one that ran beside the one that decided
    ],
)
def test_a_look_sees_complete_startups_from_the_first_on(counts, looks, seen):
    assert n_seen(pairs(*counts), PLAIN, looks) == seen
    assert judgeable(pairs(*counts), PLAIN | {"stop": "decided"}, looks).startup.nunique() == seen
    assert len(judgeable(pairs(*counts), PLAIN, looks)) == sum(counts)

"""A campaign whose startups had neighbours cites what is known of them, or says that nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.errors import UsageError
from campaigns.plan import Arm, CampaignPlan, Fixture, LeasePlan, Mode, ServerPlan, Step
from campaigns.provenance import Build, Host, fingerprint
from campaigns.remarks import Probe
from orchestrator.studies.neighbours import Turn, _check, _order, _probe
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

HOST = {"host.device_names": "GPU A", "host.cpu": "cpu"}
PLAN = CampaignPlan(
    name="beside",
    control=Arm("a"),
    candidate=Arm("b"),
    fixtures=(Fixture("f", "{}", (1,)),),
    server=ServerPlan("dflash2", model="embedded"),
    startups=2,
    pairs=2,
    warmups=0,
    lease=LeasePlan(parallel=2, per_host=2),
)


def script(step: Step, attempt: int) -> Script:
    return Script(Trajectory(12, 4, 6), 16.0)


def reported(path: Path, plan: CampaignPlan, *probes: Probe) -> str:
    with Store.open(path) as store:
        Driver(store, plan, script, fingerprint=HOST).run()
        store.probes(probes)
    with Reader.open(path) as reader:
        return render(reader, reader.resolve("last"), "md")


def line(**more: object) -> str:
    found = {"devices": "GPU A", "cpu": "cpu", "n_turns": 4, "slower_pct": 1.5, "ci_pct": [0.5, 2.5]}
    return json.dumps({**found, "pair_sd_alone_pct": 0.2, "pair_sd_beside_pct": 0.9, **more})


def test_without_a_probe_the_report_says_so(tmp_path: Path) -> None:
    told = reported(tmp_path / "s.sqlite", PLAN)
    assert "up to 2 startups at a time worked on one host (lease.per_host); no probe on such devices" in told


def test_the_newest_probe_of_such_devices_is_cited(tmp_path: Path) -> None:
    probes = [
        Probe("2026-01-01T00:00:00", "neighbours", "lease.per_host=2", "failed", "", line(slower_pct=9.0)),
        Probe("2026-01-02T00:00:00", "neighbours", "lease.per_host=2", "failed", "", line()),
        Probe("2026-01-03T00:00:00", "neighbours", "lease.per_host=2", "failed", "", line(devices="GPU B")),
        Probe("2026-01-03T00:00:00", "neighbours", "lease.per_host=4", "failed", "", line(slower_pct=7.0)),
    ]
    told = reported(tmp_path / "s.sqlite", PLAN, *probes)
    assert "a probe of 2026-01-02 over 4 turns on such devices found times +1.50 % beside neighbours" in told
    assert "(95 % +0.50 to +2.50 %) and pairs of equal arms 0.9 % apart instead of 0.2 %" in told


def test_alone_on_the_host_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert "worked on one host" not in reported(tmp_path / "s.sqlite", replace(PLAN, lease=LeasePlan(parallel=2)))


def test_times_beside_neighbours_are_not_compared_with_times_alone() -> None:
    build, host = Build(*[""] * 7), Host(("g",), "", "", "", "")
    beside, alone = (fingerprint(replace(PLAN, lease=lease), build, host, {}) for lease in (PLAN.lease, LeasePlan()))
    assert set(beside.items()) - set(alone.items()) == {("lease.per_host", "2")} and not set(alone) - set(beside)


@pytest.mark.parametrize(
    ("shifts", "status"),
    [
        ((0.001, 0.002, -0.001, 0.0), "passed"),
        ((0.05, 0.06, 0.055, 0.05), "failed"),
        ((0.05, -0.06, 0.03, 0.0), "held"),
        ((0.0, 0.0), "held"),  # no interval from two turns
    ],
)
def test_what_a_probe_says(shifts: tuple[float, ...], status: str) -> None:
    class Prepared:
        plan = PLAN
        fingerprint = HOST

    turns = []
    for shift in shifts:
        turns += [Turn("a", False, 1.0, (0.0, 0.01)), Turn("b", True, 1.0 + shift, (0.0, 0.02))]
    found = _probe(Prepared(), turns)  # type: ignore[arg-type]
    told = json.loads(found.line_json)
    assert (found.status, found.subject, told["n_turns"]) == (status, "lease.per_host=2", len(shifts))
    assert told["pair_sd_beside_pct"] == pytest.approx(2 * told["pair_sd_alone_pct"], rel=0.02)
    assert _order(4) == [False, True, True, False] * 2


@pytest.mark.parametrize(
    ("mode", "lease", "said"),
    [
        (Mode.AA, LeasePlan(per_host=2, inventory="simulated:one"), "2 startups at once need 2 devices, and .* has 1"),
        (Mode.AA, LeasePlan(per_host=3, count=4, inventory="simulated:eight"), "need 12 devices, and this host has 8"),
        (Mode.AB, LeasePlan(per_host=2, inventory="simulated:eight"), "needs equal arms"),
    ],
)
def test_a_probe_without_room_is_refused_before_it_measures(mode: Mode, lease: LeasePlan, said: str) -> None:
    class Prepared:
        plan = replace(PLAN, mode=mode, lease=lease)

    with pytest.raises(UsageError, match=said):
        _check(Prepared())  # type: ignore[arg-type]

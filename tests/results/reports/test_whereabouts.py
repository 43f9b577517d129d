"""A campaign over several devices says which startup ran where, and what lies between the devices."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan, Step
from campaigns.records import Startup
from results.reading.summary import summarise
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

PLAN = CampaignPlan(
    name="fleet",
    control=Arm("a"),
    candidate=Arm("b", (("projection", "x"),)),
    fixtures=(Fixture("f", "{}", (1,)),),
    server=ServerPlan("dflash2", model="embedded"),
    startups=6,
    pairs=2,
    warmups=0,
)


def script(step: Step, attempt: int) -> Script:
    """Every second device is a tenth slower; the candidate is as much faster on each."""
    slow = 1.1 if step.key.startup % 2 else 1.0
    wobble = 1 + 0.001 * ((step.key.startup * 7 + step.key.repeat) % 5)
    return Script(Trajectory(12, 4, 6), 16.0 * slow * wobble * (0.97 if step.role is Role.CANDIDATE else 1.0))


def measured(path: Path, n_devices: int) -> Path:
    with Store.open(path) as store:
        keep = store.startup

        def on_its_device(startup: Startup) -> None:
            number = startup.startup % n_devices
            keep(replace(startup, device_uuids=(f"GPU-{number}",), host=f"node-{number}"))

        store.startup = on_its_device  # type: ignore[method-assign]
        Driver(store, PLAN, script).run()
    return path


def report(path: Path, format: str) -> str:
    with Reader.open(path) as reader:
        return render(reader, reader.resolve("last"), format)


def test_two_devices_of_two_hosts(tmp_path: Path) -> None:
    path = measured(tmp_path / "s.sqlite", 2)
    text = report(path, "md")
    assert "| 2 | 1 | complete | 1.50 | GPU-1 on node-1 |" in text
    assert "6 startups ran on 2 sets of devices of 2 hosts" in text
    [line] = re.findall(r"the control's level varies between devices by (.*) \(standard.*p = (\S+)", text)
    assert line[0] == "6.9 %" and float(line[1]) < 1e-4  # ln 1.1 / sqrt 2 = 0.067
    found = json.loads(report(path, "json"))["between_devices"]
    assert (found["n_hosts"], found["n_devices"]) == (2, 2)
    assert found["effect"]["p_f_test"] > 0.05 and found["effect"]["n_startups"] == 6


def test_a_startup_for_each_device_tells_nothing_between_them(tmp_path: Path) -> None:
    path = measured(tmp_path / "s.sqlite", 6)
    assert "each set of devices had one startup" in report(path, "md")
    assert json.loads(report(path, "json"))["between_devices"]["effect"] is None


def test_one_device_needs_no_word(tmp_path: Path) -> None:
    path = measured(tmp_path / "s.sqlite", 1)
    text = report(path, "md")
    assert "sets of devices" not in text and "on node-0" not in text
    with Reader.open(path) as reader:
        assert summarise(reader, reader.resolve("last")).whereabouts.n_devices == 1

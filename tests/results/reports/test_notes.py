"""What stands round a report's tables: how many startups it is over, failures told once, what a page makes of marks."""

import itertools
import json
from dataclasses import replace

import pytest

from campaigns.order import blocks
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus, DeviceSample, Failure
from orchestrator.cli import main
from results.conditions.health import told_once
from results.conditions.load import HostLoad
from results.store.writer import Store
from results.transfer.scripts import Trajectory
from results.transfer.synthetic import CREATED, Driver
from tests.results.reports.test_report import PLAN, report, script

DIED = "the server died during a request: exit code -9"


@pytest.fixture(scope="module")
def stopped(module_ram):
    """One fixture has two startups, the other one; a dead server that two places told of, and a second server error."""
    path = module_ram / "store.sqlite"
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


@pytest.fixture(scope="module")
def page(stopped):
    return report(stopped, "html")


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


def test_a_list_has_the_beginning_of_a_long_reason_and_json_all_of_it(ram, capsys):
    why = "startup 1 died because: " + " ".join(f"line-{i}" for i in range(40))
    with Store.open(ram / "why.sqlite") as store:
        name = Driver(store, PLAN, script).run()
        store.status(name, CampaignStatus.FAILED, why)
    assert main(["status", "--store", str(ram / "why.sqlite")]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert "(startup 1 died because: line-0" in line and line.endswith(" …)") and len(line) < 200
    assert main(["status", "--format", "json", "--store", str(ram / "why.sqlite")]) == 0
    assert json.loads(capsys.readouterr().out)[0]["reason"] == why


def test_a_log_s_lines_stand_below_what_they_belong_to(ram, capsys):
    with Store.open(ram / "log.sqlite") as store:
        name = Driver(store, PLAN, script).run()
        store.failure(
            Failure(name, CREATED, Reason.SERVER_DIED, "it died; its log ends:\nloading\nout of memory", 0, 1)
        )
    assert main(["status", "last", "--store", str(ram / "log.sqlite")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "      loading" in lines and "      out of memory" in lines


def test_a_page_says_what_exactness_was_required(page):
    assert "<dt>exact pairs (E4 was required)</dt>" in page


def test_a_page_shows_code_spans_as_elements(page):
    notes = page[page.index("<h2>Notes</h2>") :]
    assert "`" not in notes and "<code>" in notes


@pytest.fixture(scope="module")
def on_cpu(module_ram):
    """Measured on a host of two CPUs that three processes wanted once."""
    loads = itertools.cycle([0.5, 1.0, 1.0, 3.25])

    def sample(driver, request):
        return DeviceSample(request.send_ns, "cpu-ab", 2100, None, None, None, None, 10**9, next(loads))

    path = module_ram / "cpu.sqlite"
    with pytest.MonkeyPatch.context() as monkeypatch, Store.open(path) as store:
        monkeypatch.setattr(Driver, "_sample", sample)
        driver = Driver(store, replace(PLAN, startups=1), script, samples=True)
        start, campaign = store.startup, driver.campaign
        host = {"host": {"num_cpus": 2}}
        monkeypatch.setattr(store, "startup", lambda life: start(replace(life, device_uuids=("cpu-ab",))))
        monkeypatch.setattr(driver, "campaign", lambda: replace(campaign(), provenance=host))
        driver.run()
    return path


def test_the_load_of_the_host_stands_beside_its_processors(on_cpu, stopped):
    assert "load of the host: median 1.00, largest 3.25 on 2 CPUs ! more than there are" in report(on_cpu)
    assert json.loads(report(on_cpu, "json"))["host_load"] == {"median": 1.0, "largest": 3.25, "num_cpus": 2}
    assert "!" not in HostLoad(0.5, 2.0, 2).line and "!" not in HostLoad(0.5, 9.0, None).line
    assert "load of the host" not in report(stopped)


def test_a_cpu_has_no_sm_clock(on_cpu, stopped):
    assert "SM clocks were not sampled" not in report(on_cpu)
    assert "SM clocks were not sampled" in report(stopped)
    page = report(on_cpu, "html")
    assert "CPU clock, MHz" in page and "load of the host" in page
    assert "SM clock" not in page and "power, W" not in page


def test_a_gpu_has_clock_and_power_and_unsampled_devices_no_figure(page, ram):
    with Store.open(ram / "gpu.sqlite") as store:
        Driver(store, replace(PLAN, startups=1), script, samples=True).run()
    sampled = report(ram / "gpu.sqlite", "html")
    assert "SM clock, MHz" in sampled and "power, W" in sampled and "CPU clock" not in sampled
    assert "Devices over the campaign" not in page


def test_answers_too_short_for_a_level_are_told(ram):
    """One fixture's answers end after two rounds, whose time is that of first rounds alone."""
    short = PLAN.fixtures[0].id

    def ends_early(step, attempt):
        made = script(step, attempt)
        return replace(made, trajectory=Trajectory(8, 2, 5)) if step.key.fixture == short else made

    found = []
    for name, way in (("whole", script), ("short", ends_early)):
        with Store.open(ram / f"{name}.sqlite") as store:
            Driver(store, PLAN, way).run()
        found.append("answers of fewer than 4 rounds: 30 requests" in report(ram / f"{name}.sqlite"))
    assert found == [False, True]

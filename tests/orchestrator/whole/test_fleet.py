"""A campaign over three nodes: one is killed in the middle, its driver too, and another driver elsewhere goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import Exit, UsageError
from campaigns.records import CampaignStatus, StartupStatus
from orchestrator.checkouts.places import ROOT
from results.reading.summary import summarise
from results.store.reader import Life, Reader

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

CAMPAIGN = Path(sys.executable).with_name("campaign")
SERVER = ROOT / "docs" / "examples" / "small_openai_server.py"
STARTUPS, PER_HOST, PARALLEL = 24, 2, 6
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "token"}


@dataclass
class Place:
    """Where a campaign is stored; the disk that all nodes share."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "campaigns.sqlite"

    def words(self, address: str, *more: str) -> list[str]:
        return [
            "campaign.mode=aa",
            "arm@campaign.control=default",
            "arm@campaign.candidate=default",
            "campaign.required_exactness=1",
            "campaign.max_tokens=24",
            f"campaign.startups={STARTUPS}",
            "campaign.pairs=2",
            "campaign.warmups=1",
            "startup.calibrate_s=0",
            "server=command",
            f"server.command={json.dumps([sys.executable, str(SERVER), '{port}', '--round-ms', '40'])}",
            "lease=simulated",
            "lease.inventory=simulated:fleet",
            f"lease.lock_dir={self.folder / 'locks'}",
            f"lease.ray_address={address}",
            f"lease.parallel={PARALLEL}",
            f"lease.per_host={PER_HOST}",
            f"store.path={self.store}",
            *more,
        ]

    def start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        with (self.folder / "console.log").open("ab") as log:
            return subprocess.Popen(
                [*map(str, command)], stdout=log, stderr=log, env=ENVIRONMENT, cwd=self.folder, start_new_session=True
            )

    @property
    def told(self) -> str:
        return (self.folder / "console.log").read_text()

    def num_pairs(self) -> int:
        with suppress(UsageError), Reader.open(self.store) as reader:  # not there yet, or empty
            found = reader.campaigns()
            return len(reader.recorded(found[-1].campaign_id).pairs) if found else 0
        return 0

    def await_pairs(self, driver: subprocess.Popen[bytes], count: int) -> None:
        deadline = time.monotonic() + 400
        while self.num_pairs() < count:
            assert driver.poll() is None and time.monotonic() < deadline, self.told[-4000:]
            time.sleep(0.3)


def at_once(lives: list[Life], host: str) -> int:
    """The most startups that ran on a host together, by the driver's clock alone: each life has one end."""
    events: list[tuple[datetime, int]] = []
    for life in lives:
        if life.startup.host == host and life.end is not None:
            began, ended = (datetime.fromisoformat(t) for t in (life.startup.created_utc, life.end.ended_utc))
            events += [(began, 1), (ended, -1)]
    running, most = 0, 0
    for _, step in sorted(events):
        running += step
        most = max(most, running)
    return most


def leftovers(nodes: Any, place: Place) -> list[str]:
    return [c for node in nodes.nodes.values() for c in node.commands() if str(SERVER) in c or "StandActor" in c]


def test_every_node_shows_its_devices(nodes: Any, tmp_path: Path) -> None:
    listed = [CAMPAIGN, "lease", "list", "--cluster", nodes.address, "--inventory", "simulated:fleet"]
    told = subprocess.run([*listed], capture_output=True, text=True, env=ENVIRONMENT)
    assert told.returncode == 0, told.stderr
    devices = [line.split()[1] for line in told.stdout.splitlines() if "Simulated GPU" in line]
    assert len(devices) == len(set(devices)) == 8 * 4  # three nodes, and the head's host
    assert all(f"{node.name} ({node.address})" in told.stdout for node in nodes.nodes.values())


def test_a_node_is_killed_and_another_driver_goes_on(nodes: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = place.start(CAMPAIGN, "run", *place.words(nodes.address))
    place.await_pairs(first, 16)
    nodes.nodes[2].kill()
    place.await_pairs(first, place.num_pairs() + 16)  # its startups go on elsewhere, and the others never stopped
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = place.num_pairs()

    survivor = nodes.nodes[3]
    second = place.start(*survivor.within(CAMPAIGN, "resume", "last", "--store", place.store))
    assert second.wait(500) in (Exit.COMPLETE, Exit.SLOWER), place.told[-4000:]

    with Reader.open(place.store) as reader:
        campaign = reader.campaigns()[-1].campaign_id
        recorded, lives = reader.recorded(campaign), reader.lives(campaign)
        assert reader.status(campaign) is CampaignStatus.COMPLETE
        assert len(recorded.pairs) == STARTUPS * 2 * 2 and before < len(recorded.pairs)
        summary = summarise(reader, campaign)
        failures = reader.failures(campaign)
    _require_right(lives, summary)
    assert any("lost" in failure.message for failure in failures)
    deadline = time.monotonic() + 60
    while (left := leftovers(nodes, place)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left
    held = [p.name for p in (tmp_path / "locks").glob("*.lock") if not _free(p)]
    assert not held


def _require_right(lives: list[Life], summary: Any) -> None:
    """Every pair came from one life; hosts took what they may, and both that lived were used."""
    assert summary.n_admissible_pairs + summary.n_excluded == STARTUPS * 4
    hosts = Counter(life.startup.host for life in lives if life.end and life.end.status is StartupStatus.COMPLETE)
    assert set(hosts) >= {"fleet1", "fleet3"}, hosts
    assert all(at_once(lives, host) <= PER_HOST for host in ("fleet1", "fleet2", "fleet3"))
    assert summary.whereabouts.n_hosts >= 2 and summary.whereabouts.n_devices >= 3


def _free(path: Path) -> bool:
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_cable_is_drawn_and_nothing_is_left_on_the_host_that_still_lives(nodes: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    small = ("campaign.startups=6", "lease.parallel=2", "lease.per_host=1", "campaign.pairs=4")
    driver = place.start(CAMPAIGN, "run", *place.words(nodes.address, *small))
    place.await_pairs(driver, 4)
    with Reader.open(place.store) as reader:
        running = [life.startup.host for life in reader.lives(reader.campaigns()[-1].campaign_id) if life.end is None]
    cut = next(node for node in nodes.nodes.values() if node.name in running)
    cut.cut()
    assert driver.wait(500) in (Exit.COMPLETE, Exit.SLOWER), place.told[-4000:]
    with Reader.open(place.store) as reader:
        campaign = reader.campaigns()[-1].campaign_id
        lives = reader.lives(campaign)
        assert len(reader.recorded(campaign).pairs) == 6 * 2 * 4
        assert any("lost" in failure.message for failure in reader.failures(campaign))
    assert cut.name in {life.startup.host for life in lives}
    deadline = time.monotonic() + 240  # its raylet gives up first
    while (left := leftovers(nodes, place)) and time.monotonic() < deadline:
        time.sleep(1.0)
    assert not left

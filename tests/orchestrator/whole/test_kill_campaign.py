"""Whole campaigns on the shipped server, killed in mid-pair and resumed; two campaigns that want one device."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.hosts import reaper
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.locks import Kind, LockFolder

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

SMALL = [
    "campaign.startups=2",
    "campaign.pairs=2",
    "campaign.max_tokens=40",
    "startup.calibrate_s=0.3",
    "lease.inventory=simulated:one",
]
NUM_PAIRS = 8
WITHIN_S = 600.0
KEYS = "startup, fixture, seed, repeat"


@dataclass
class Campaign:
    """One store, one lock folder, and the commands that run on them."""

    folder: Path
    locks: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.folder / "campaigns.sqlite"

    def start(self, *overrides: str) -> subprocess.Popen[str]:
        self.folder.mkdir(exist_ok=True)
        words = ["run", *SMALL, f"store.path={self.store}", f"lease.lock_dir={self.locks}", *overrides]
        return self._campaign(*words)

    def resume(self) -> int:
        process = self._campaign("resume", "last", "--store", str(self.store))
        process.communicate(timeout=WITHIN_S)
        return process.returncode

    def _campaign(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "orchestrator.cli", *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.running.append(subprocess.Popen(command, start_new_session=True, **pipes))
        return self.running[-1]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if not self.store.exists():
            return []
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as connection:
            try:
                return list(connection.execute(query))
            except sqlite3.OperationalError:
                return []  # not migrated yet

    def num_measured(self) -> int:
        return len(self.rows("SELECT 1 FROM request WHERE phase = 'measure'"))

    def answers(self) -> dict[tuple[Any, ...], str]:
        """(pair, role) to the hash of the answer, newest attempt of each block."""
        newest = (
            "SELECT max(attempt) FROM block b WHERE (b.startup, b.fixture, b.seed) = (r.startup, r.fixture, r.seed)"
        )
        query = (
            f"SELECT {KEYS}, role, token_sha256 FROM request r WHERE phase = 'measure' AND block_attempt = ({newest})"
        )
        found = self.rows(query)
        assert max(Counter(row[:-1] for row in found).values()) == 1, "a request is there twice"
        return {row[:-1]: row[-1] for row in found}

    def servers(self) -> list[int]:
        """What runs in the work folders of this campaign's servers."""
        return [pid for pid in reaper.all_pids() if str(self.folder) in _cwd(pid) and reaper.start_ticks(pid)]


def _cwd(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def eventually(condition: Callable[[], object], within_s: float = WITHIN_S) -> bool:
    deadline = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Callable[[str], Campaign]]:
    made: list[Campaign] = []

    def make(name: str) -> Campaign:
        made.append(Campaign(tmp_path / name, tmp_path / "locks"))
        return made[-1]

    yield make
    for process in (process for each in made for process in each.running):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Any, ...], str]:
    """The answers of a campaign that nobody kills."""
    folder = tmp_path_factory.mktemp("undisturbed")
    campaign = Campaign(folder / "store", folder / "locks")
    process = campaign.start()
    output, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, output
    return campaign.answers()


def victims(campaign: Campaign, driver: int) -> dict[str, int]:
    tree = [driver, *reaper.descendants(driver)]
    return {
        "driver": driver,
        "actor": next((pid for pid in tree if "StandActor" in _command(pid)), 0),
        "raylet": next((pid for pid in tree if "/raylet/raylet " in _command(pid)), 0),
        "server": next((pid for pid in campaign.servers() if " -m runtime.server " in _command(pid)), 0),
        "engine": next((pid for pid in campaign.servers() if " -m runtime.workers.worker " in _command(pid)), 0),
    }


@pytest.mark.parametrize("victim", ["driver", "actor", "raylet", "server", "engine"])
@pytest.mark.parametrize("num_before", [3, 11])
def test_killed_in_mid_pair_and_resumed(
    campaign: Callable[[str], Campaign], undisturbed: dict[tuple[Any, ...], str], victim: str, num_before: int
) -> None:
    it = campaign("killed")
    process = it.start()
    assert eventually(lambda: it.num_measured() >= num_before or process.poll() is not None)
    pids = victims(it, process.pid)
    complete = it.rows("SELECT startup, fixture, seed FROM pair GROUP BY 1, 2, 3 HAVING count(*) = 2")
    assert pids[victim], (process.poll(), pids)  # 0 would be all of us
    os.kill(pids[victim], signal.SIGKILL)
    output, _ = process.communicate(timeout=WITHIN_S)
    assert eventually(lambda: not it.servers(), within_s=30.0), [_command(pid) for pid in it.servers()]
    assert process.returncode == {"driver": -signal.SIGKILL, "raylet": 5}.get(victim, 0), output
    assert "Traceback" not in output
    assert it.resume() == 0

    assert it.answers() == undisturbed
    assert len(it.rows(f"SELECT DISTINCT {KEYS} FROM pair")) == NUM_PAIRS
    repeated = it.rows("SELECT startup, fixture, seed FROM block GROUP BY 1, 2, 3 HAVING count(*) > 1")
    assert len(repeated) <= 1 and not set(repeated) & set(complete)
    assert it.rows("SELECT count(*) FROM pair WHERE exactness < 4") == [(0,)]
    assert not it.servers()


def test_two_campaigns_on_one_device(campaign: Callable[[str], Campaign]) -> None:
    first, second, third = campaign("first"), campaign("second"), campaign("third")
    one = first.start()
    [device] = open_inventory("simulated:one").devices()
    assert eventually(lambda: LockFolder(str(first.locks)).is_held(device.uuid, [Kind.CLAIM]))
    refused = second.start()  # at once: it starts a Ray before it asks, and the first campaign is short
    output, _ = refused.communicate(timeout=WITHIN_S)
    [(first_id,)] = first.rows("SELECT campaign_id FROM campaign")
    assert refused.returncode == 5 and f"is held by campaign {first_id}" in output
    patient = third.start(f"lease.wait_s={WITHIN_S}")
    for process in (one, patient):
        output, _ = process.communicate(timeout=2 * WITHIN_S)
        assert process.returncode == 0, output
    assert first.answers() == third.answers() and len(third.answers()) == 2 * NUM_PAIRS

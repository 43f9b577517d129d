"""SIGKILL for each of our processes at each stage of a campaign, and what must hold whatever was killed when.

A kill ends in one of three ways: the life's block is repeated and the campaign completes; the campaign ends with 5 and
one sentence; or, where the driver itself was killed, `resume` goes on. It never ends with 0 and less than the plan,
never with 70, loses no committed row, and leaves no process. Many kills share a campaign: each life is a new chance.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.checkouts.places import ROOT
from orchestrator.hosts import reaper
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.locks import LockFolder
from results.store.reader import Reader
from results.store.verify import Tally, verify

pytestmark = [pytest.mark.acceptance, pytest.mark.ray, pytest.mark.timeout(3600)]

SERVER = ROOT / "docs" / "examples" / "small_openai_server.py"
STARTUPS, PAIRS = 2, 6
WITHIN_S = 300.0
_MARK = "KILLED_CAMPAIGN"  # in the environment of all that runs for it
STAGES = ("starting", "calibrating", "warming", "first pair", "later pair", "second startup")
HELPERS = ("server", "reaper", "recorder", "sampler", "null server")
_MARKS = {
    "reaper": "hosts/reaper.py",
    "recorder": "measuring.recorder",
    "sampler": "devices.sampler",
    "null server": "nullserver.py",
    "actor": "ray::StandActor",
    "raylet": "/raylet/raylet",
    "gcs_server": "/gcs/gcs_server",
}
# A helper that is not there at a stage cannot be killed there.
_ABSENT = {
    "recorder": {"starting"},
    "sampler": {"starting"},
    "null server": set(STAGES) - {"calibrating"},
}


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def command_of(pid: int) -> str:
    return " ".join(words_of(pid))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def is_the(victim: str, pid: int) -> bool:
    """By a word of its own: the server's command stands in the driver's words, too, and behind the reaper's dashes."""
    words = words_of(pid)
    own = words[: words.index("--")] if "--" in words else words
    return any(word == str(SERVER) if victim == "server" else _MARKS[victim] in word for word in own)


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@dataclass
class Kill:
    """`lost`, `left` and `held` are counted when the campaign's process has ended: rows, processes, devices locked."""

    victim: str
    stage: str
    utc: str
    committed: set[tuple[object, ...]]
    followed: str = ""
    lost: int = 0
    left: int = 0
    held: int = 0


@dataclass
class Campaign:
    """One store, and whatever runs for it; `kills` is what was really killed."""

    folder: Path
    with_ray: bool
    kills: list[Kill] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None
    said: str = ""

    @property
    def store(self) -> Path:
        return self.folder / "campaigns.sqlite"

    def start(self) -> None:
        server = [sys.executable, str(SERVER), "{port}", "--round-ms", "2"]
        words = [
            "arm@campaign.control=default",
            "arm@campaign.candidate=default",
            "campaign.mode=aa",
            "campaign.max_tokens=24",
            f"campaign.startups={STARTUPS}",
            f"campaign.pairs={PAIRS}",
            "startup=switch",
            "startup.calibrate_s=0.4",
            "startup.retries=60",
            "startup.sample_hz=10",
            "server=command",
            "server.stop_grace_s=1",
            f"server.command={json.dumps(server)}",
            "lease.inventory=simulated:one",
            f"lease.lock_dir={self.folder / 'locks'}",
        ]
        self._campaign("resume", "last", "--store", str(self.store)) if self.store.exists() else self._campaign(
            "run", f"store.path={self.store}", *words
        )

    def _campaign(self, *words: str) -> None:
        module = ["-m", "orchestrator.cli"] if self.with_ray else [str(Path(__file__).with_name("stand_driver.py"))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), _MARK: str(self.folder)}
        command = [sys.executable, *module, *words]
        with (self.folder / "out").open("a") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, env=environment, cwd=ROOT, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def rows(self, query: str) -> list[tuple[object, ...]]:
        if not self.store.exists():
            return []
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as connection:
            try:
                return list(connection.execute(query))
            except sqlite3.OperationalError:
                return []

    def ours(self) -> list[int]:
        """Everything that runs for the campaign, wherever it was reparented to."""
        mark = f"{_MARK}={self.folder}\0".encode()
        return [pid for pid in reaper.all_pids() if mark in environment_of(pid) and reaper.start_ticks(pid) is not None]

    def pid_of(self, victim: str) -> int | None:
        if victim == "driver":
            return self.process.pid if self.is_running else None
        return next((pid for pid in self.ours() if is_the(victim, pid)), None)

    def counts(self) -> tuple[int, int, int]:
        """(lives that came up, warm-ups, measured requests) so far."""
        [(lives,)] = self.rows("SELECT count(*) FROM startup") or [(0,)]
        [(warm,)] = self.rows("SELECT count(*) FROM request WHERE phase = 'warmup'") or [(0,)]
        [(measured,)] = self.rows("SELECT count(*) FROM request WHERE phase = 'measure'") or [(0,)]
        return int(str(lives)), int(str(warm)), int(str(measured))

    def is_at(self, stage: str, before: tuple[int, int, int]) -> bool:
        """Whether the campaign has come to a stage since the counts were as `before`."""
        _, warm, measured = (now - then for now, then in zip(self.counts(), before, strict=True))
        if stage == "starting":
            newest = max(self.folder.glob("*/startup-*"), key=lambda path: path.stat().st_mtime_ns, default=None)
            rows = self.rows("SELECT startup, attempt FROM startup")
            up = {f"startup-{startup}-{attempt}" for startup, attempt in rows}
            return newest is not None and newest.name not in up and self.pid_of("server") is not None
        if stage == "calibrating":
            return self.pid_of("null server") is not None
        if stage == "second startup":
            return bool(self.rows("SELECT 1 FROM startup WHERE startup = 1"))
        return {"warming": warm, "first pair": measured, "later pair": measured // 4}[stage] > 0

    def committed(self) -> set[tuple[object, ...]]:
        return set(self.rows("SELECT id, row_sha256 FROM request"))

    def kill(self, victim: str, stage: str, luck: random.Random) -> bool:
        """False where the campaign ended first."""
        before = self.counts()
        deadline = time.monotonic() + WITHIN_S
        while self.is_running and time.monotonic() < deadline:
            if self.is_at(stage, before) and (pid := self.pid_of(victim)):
                time.sleep(luck.uniform(0.0, 0.03))
                made = Kill(victim, stage, _now(), self.committed())
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.kills.append(made)
                return True
            time.sleep(0.01)
        return False

    def settle(self, code: int, left: int) -> None:
        """What followed each kill since the last end: failures until the next kill, or the end of the campaign."""
        unsettled = [kill for kill in self.kills if not kill.followed]
        failures = self.rows("SELECT utc, reason FROM failure ORDER BY id")
        now, locks = self.committed(), LockFolder(str(self.folder / "locks"))
        held = sum(locks.is_held(device.uuid) for device in open_inventory("simulated:one").devices())
        for kill, after in zip(unsettled, [*(kill.utc for kill in unsettled[1:]), "~"], strict=False):
            reasons = [str(reason) for utc, reason in failures if kill.utc <= str(utc) < after]
            ended = f"exit {code}" if after == "~" and code else ""
            again = f"{', '.join(dict.fromkeys(reasons))}; measured again" if reasons else ""
            kill.followed = ended or again or "the life went on"
            kill.lost, kill.left, kill.held = len(kill.committed - now), left, held

    def table(self) -> str:
        counted = Counter((k.victim, k.stage, k.followed, k.lost, k.left, k.held) for k in self.kills)
        lines = [f"| {' | '.join(map(str, (*row[:3], times, *row[3:])))} |" for row, times in sorted(counted.items())]
        head = "| killed | at | what followed | times | rows lost | processes left | devices locked |"
        return "\n".join(["", head, "| --- | --- | --- | --- | --- | --- | --- |", *lines, ""])

    def set_aside_if_over(self, code: int) -> None:
        """The next kills are another campaign's."""
        if code in (0, 4):
            self.store.rename(self.folder / f"done-{len(self.kills)}.sqlite")

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(WITHIN_S)


def check_end(it: Campaign, code: int, committed: set[tuple[object, ...]]) -> None:
    """What holds after every end."""
    out = (it.folder / "out").read_text()
    deadline = time.monotonic() + 60
    while (left := [command_of(pid) for pid in it.ours()]) and time.monotonic() < deadline:
        if all("agent" in command.lower() for command in left):  # Ray's, which see a killed driver after a minute
            break
        time.sleep(0.1)
    left = [command for command in left if "agent" not in command.lower()]
    it.settle(code, len(left))
    assert not left
    assert not any(kill.lost or kill.held for kill in it.kills), it.table()
    assert code in (0, 4, 5, -signal.SIGKILL), (code, out[-2000:])
    assert "Traceback" not in out and "this is a bug" not in out, out[-4000:]
    assert committed <= it.committed(), "a committed request is gone"
    if code == 5:
        assert out.rstrip().splitlines()[-1].startswith("campaign: "), out[-2000:]
    if code in (0, 4):
        assert len(it.rows("SELECT DISTINCT startup, fixture, seed, repeat FROM pair")) % (STARTUPS * PAIRS) == 0
        [(status,)] = it.rows("SELECT status FROM campaign_event ORDER BY id DESC LIMIT 1")
        assert status == "complete"
        with Reader.open(it.store) as reader:
            assert not list(verify(reader, reader.resolve("last"), Tally()))


def drive(it: Campaign, kills: list[tuple[str, str]]) -> None:
    """All kills, in as many lives and campaigns' resumptions as they need; then undisturbed to the end."""
    luck = random.Random(17)
    it.folder.mkdir(parents=True, exist_ok=True)
    it.start()
    for victim, stage in kills:
        if not it.kill(victim, stage, luck):
            code = it.wait()
            check_end(it, code, it.committed())
            it.set_aside_if_over(code)
            it.start()
            assert it.kill(victim, stage, luck), (victim, stage, (it.folder / "out").read_text()[-2000:])
        if victim in ("driver", "raylet", "gcs_server"):
            committed = it.committed()
            code = it.wait()
            check_end(it, code, committed)
            # Where Ray went after the last request the plan is complete, as `check_end` has seen.
            assert code == -signal.SIGKILL if victim == "driver" else code in (0, 4, 5)
            it.set_aside_if_over(code)
            it.start()
    code = it.wait()
    check_end(it, code, it.committed())
    assert code in (0, 4)


@pytest.fixture
def it(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Campaign]:
    made = Campaign(tmp_path / "c", with_ray=False)
    yield made
    print(made.table())
    if made.process is not None and made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()


def matrix(victims: tuple[str, ...], times: int) -> list[tuple[str, str]]:
    """Each victim at each stage where it lives, `times` times, in an order that mixes them."""
    cells = [(v, stage) for v in victims for stage in STAGES if stage not in _ABSENT.get(v, ())]
    kills = cells * times
    random.Random(5).shuffle(kills)
    return sorted(kills, key=lambda kill: kill[1] == "second startup")


@pytest.mark.parametrize("part", range(3))
def test_each_process_at_each_stage(it: Campaign, part: int) -> None:
    drive(it, matrix((*HELPERS, "driver"), 2))
    assert len(it.kills) == 58


@pytest.mark.parametrize("victim", [*HELPERS, "actor"])
def test_each_helper_at_each_stage_under_ray(it: Campaign, victim: str) -> None:
    """Each within minutes, so that they can be run one by one."""
    it.with_ray = True
    kills = matrix((victim,), 3)
    drive(it, kills)
    assert len(it.kills) == len(kills)


def test_each_process_that_all_hangs_on_at_each_stage_under_ray(it: Campaign) -> None:
    it.with_ray = True
    kills = matrix(("driver", "raylet", "gcs_server"), 1)
    drive(it, kills)
    assert len(it.kills) == len(kills)

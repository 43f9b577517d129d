"""A race of the embedded runtime's arms: killed in its first round, gone on with, its winner confirmed once more."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaigns.errors import Exit, UsageError
from campaigns.records import CampaignStatus
from orchestrator.checkouts.places import ROOT
from results.store.reader import Reader

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

CAMPAIGN = Path(sys.executable).with_name("campaign")
ARMS = ("torch-tuned", "columns-32", "columns-128")
WORDS = (
    "server=embedded",
    "campaign=smoke",
    "campaign.pairs=2",
    "campaign.max_tokens=24",
    "startup.calibrate_s=0",
)


def num_pairs(store: Path) -> dict[str, int]:
    """By the campaign's name."""
    try:
        with Reader.open(store) as reader:
            return {c.name: len(reader.recorded(c.campaign_id).pairs) for c in reader.campaigns()}
    except UsageError:
        return {}


def test_real_arms_race_on_after_a_kill_and_the_winner_runs_again(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    locks = f"lease.lock_dir={tmp_path / 'locks'}"
    command = [str(CAMPAIGN), "race", "--startups=1", f"--store={store}", *ARMS, *WORDS, locks]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as driver:
        deadline = time.monotonic() + 500
        while len(found := num_pairs(store)) < 2 or not found[f"race, round 1: {ARMS[1]}"]:
            assert driver.poll() is None and time.monotonic() < deadline, driver.communicate()
            time.sleep(0.3)
        driver.kill()
        driver.communicate()
    again = [str(CAMPAIGN), "race", "--resume", f"--store={store}"]
    done = subprocess.run(again, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (Exit.COMPLETE, Exit.SLOWER), done.stdout + done.stderr[-3000:]
    _require_whole(store, done.stdout)

    before = num_pairs(store)
    repeated = subprocess.run(again, capture_output=True, text=True, cwd=tmp_path)  # nothing is left to be measured
    assert repeated.returncode == done.returncode and num_pairs(store) == before
    assert repeated.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]


def test_an_arm_whose_device_was_held_by_others_is_measured_by_whoever_goes_on(tmp_path: Path) -> None:
    """And servers of others race too."""
    for name, round_ms in {"base": 5, "slow": 8, "fast": 2}.items():
        file = tmp_path / "own" / "arm" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'name: {name}\nargs: ["--round-ms", "{round_ms}"]\n')
    store, locks = tmp_path / "s.sqlite", tmp_path / "locks"
    server = json.dumps([sys.executable, str(ROOT / "docs" / "examples" / "small_openai_server.py"), "{port}"])
    small = ["campaign.startups=1", "campaign.pairs=2", "campaign.warmups=1", "campaign.max_tokens=16"]
    own = ["arm@campaign.control=base", f"server.command={server}", f"lease.lock_dir={locks}", *small]
    foreign = ["server=command", "startup=co_resident", "startup.calibrate_s=0", "campaign.required_exactness=3"]
    words = ["slow", "fast", "--startups=1", f"--config-dir={tmp_path / 'own'}", f"--store={store}", *own, *foreign]
    with subprocess.Popen([str(CAMPAIGN), "race", *words], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as driver:
        deadline = time.monotonic() + 300
        while not num_pairs(store).get("race, round 1: slow"):
            assert driver.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        [lock] = locks.glob("*.lock")
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as soon as the first arm lets go
            told, _ = driver.communicate(timeout=300)
    assert driver.returncode == Exit.WORLD and "the race was not finished; go on with: campaign race" in told
    assert [re.split(r"  +", line)[-1] for line in told.splitlines()[-3:-1]] == ["not decided", "ended with 5"]
    again = [
        str(CAMPAIGN),
        "race",
        "--resume",
        f"--store={tmp_path / 'other.sqlite'}",
    ]  # beside it, and not this race's
    done = subprocess.run(again, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == Exit.COMPLETE and "fast won, " in done.stdout, done.stdout + done.stderr[-3000:]
    assert not (tmp_path / "other.sqlite").exists()


def _require_whole(store: Path, told: str) -> None:
    """Three arms, then the two that were left with twice the startups, then the winner in a campaign of its own."""
    with Reader.open(store) as reader:
        campaigns = reader.campaigns()
        status = {reader.status(c.campaign_id) for c in campaigns}
        startups = {c.name: {k.startup for k in reader.recorded(c.campaign_id).pairs} for c in campaigns}
        arms = {c.name: json.loads(c.plan_json)["candidate"]["name"] for c in campaigns}
    assert status == {CampaignStatus.COMPLETE}
    rounds = [[len(s) for name, s in startups.items() if name.startswith(f"race, round {n}")] for n in (1, 2)]
    assert rounds == [[1, 1, 1], [2, 2]]
    [confirmed] = [name for name in startups if name.startswith("confirmation: ")]
    winner = arms[confirmed]
    assert f"{winner} won, and in startups that the race has not seen: " in told
    assert len(startups[confirmed]) == 2 and len(startups) == 6
    assert winner in {arm for name, arm in arms.items() if name.startswith("race, round 2")}

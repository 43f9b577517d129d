"""A race of the embedded runtime's arms: killed in its first round, gone on with, its winner confirmed once more."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaigns.errors import Exit, UsageError
from campaigns.records import CampaignStatus
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

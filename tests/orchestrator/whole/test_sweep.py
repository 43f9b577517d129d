"""A sweep side by side: real processes, one store, one table, the highest exit code, and one Ctrl-C for all of them."""

from __future__ import annotations

import json
import os
import re
import signal
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
SERVER = ROOT / "docs" / "examples" / "small_openai_server.py"


def sweep(folder: Path, *more: str) -> list[str]:
    command = json.dumps([sys.executable, str(SERVER), "{port}", "--round-ms", "20"])
    return [
        str(CAMPAIGN),
        "run",
        "--multirun",
        "campaign.mode=aa",
        "arm@campaign.control=default",
        "arm@campaign.candidate=default",
        "campaign.required_exactness=1",
        "campaign.max_tokens=24",
        "campaign.pairs=2",
        "campaign.warmups=1",
        "startup.calibrate_s=0",
        "startup.retries=0",
        "server=command",
        f"server.command={command}",
        "lease=simulated",
        f"lease.lock_dir={folder / 'locks'}",
        "lease.per_host=2",
        "sweep.parallel=2",
        f"store.path={folder / 's.sqlite'}",
        *more,
    ]


def test_three_campaigns_two_at_once_one_of_them_failing(tmp_path: Path) -> None:
    words = sweep(tmp_path, "campaign.startups=1", "server.args=[],[--nonsense],[--no-tokenize]")
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == Exit.WORLD, done.stderr
    rows = [re.split(r"  +", line) for line in done.stdout.splitlines()[-3:]]
    assert [row[-1] for row in rows] == ["0", "5", "0"] and rows[0][0] == "server.args=[]"
    with Reader.open(tmp_path / "s.sqlite") as reader:
        status = {c.campaign_id: reader.status(c.campaign_id) for c in reader.campaigns()}
        first, third = (reader.lives(rows[number][1])[0] for number in (0, 2))
    assert [status[row[1]] for row in rows] == [CampaignStatus.COMPLETE, CampaignStatus.FAILED, CampaignStatus.COMPLETE]
    assert first.startup.device_uuids and third.startup.device_uuids
    assert re.search(r"ended with 5: .*exited with code 2", done.stderr), done.stderr


def test_one_ctrl_c_interrupts_all_of_them_and_each_can_be_resumed(tmp_path: Path) -> None:
    words = sweep(tmp_path, "campaign.startups=9", "campaign.seed=0,1,2")
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        deadline = time.monotonic() + 200
        while len(_with_pairs(tmp_path / "s.sqlite")) < 2:
            assert driver.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=120)
    assert driver.returncode == Exit.INTERRUPTED
    with Reader.open(tmp_path / "s.sqlite") as reader:
        found = [reader.status(campaign.campaign_id) for campaign in reader.campaigns()]
    assert found == [CampaignStatus.INTERRUPTED] * 2
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout.split()
    assert [pid for pid in left if int(pid) != os.getpid()] == []


def _with_pairs(store: Path) -> list[str]:
    try:
        with Reader.open(store) as reader:
            ids = [campaign.campaign_id for campaign in reader.campaigns()]
            return [name for name in ids if reader.recorded(name).pairs]
    except UsageError:
        return []

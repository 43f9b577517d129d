"""A candidate that takes 40 % less time on repeats and is no faster on anything new: a campaign says which it saw."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

SERVER = Path(__file__).with_name("remembering_server.py")
CAMPAIGN = Path(sys.executable).with_name("campaign")


def measured(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    words = [sys.executable, str(SERVER), "{port}"]
    command = [CAMPAIGN, "run", "--format", "json", "server=command", f"server.command={json.dumps(words)}"]
    command += ["arm@campaign.control=default", "arm@campaign.candidate=default", "campaign.candidate.name=remembers"]
    command += ["campaign.candidate.args=['--memory','0.6']", "startup=co_resident", "startup.calibrate_s=1"]
    command += ["campaign.startups=3", "campaign.pairs=4", "campaign.max_tokens=64", "campaign.required_exactness=3"]
    command += [f"store.path={tmp_path / 's.sqlite'}", f"lease.lock_dir={tmp_path / 'locks'}", *overrides]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    print(report["verdict"], report["effect_pct"], [g["repeat_trend_pct"] for g in report["fixtures"]])
    return report


def test_repeats_of_one_seed(tmp_path: Path) -> None:
    report = measured(tmp_path)
    assert report["verdict"] == "repeat-sensitive" and report["effect_pct"] < -25
    for fixture in report["fixtures"]:
        assert all(trend < -20 for trend in fixture["repeat_trend_pct"]["candidate"].values())


def test_a_fresh_seed_for_each_pair(tmp_path: Path) -> None:
    report = measured(tmp_path, "campaign.seeds=fresh")
    assert report["verdict"] not in ("faster", "repeat-sensitive") and abs(report["effect_pct"]) < 10  # a busy host
    assert report["n_exact_pairs"] == report["n_pairs"] == 24 and not report["fixtures"][0]["repeat_trend_pct"]

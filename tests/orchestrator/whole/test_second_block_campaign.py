"""Eight rows against sixteen on the real server: equal tokens, fewer rounds, acceptance told for every position."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]


def campaign(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "orchestrator.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_sixteen_rows_against_eight(tmp_path: Path) -> None:
    brief = ("campaign.startups=1", "campaign.pairs=2", "startup.calibrate_s=0.5", f"lease.lock_dir={tmp_path}/locks")
    campaign(tmp_path, "run", "campaign=lookup16", *brief)
    told: dict[str, Any] = json.loads(campaign(tmp_path, "report", "last", "--format", "json"))
    for fixture in told["fixtures"]:
        assert (fixture["n_pairs"], fixture["n_exact_pairs"]) == (2, 2)
        eight, sixteen = fixture["control"], fixture["candidate"]
        for arm, positions in ((eight, 7), (sixteen, 15)):
            accepted = arm["acceptance_histogram"]
            assert len(arm["per_position_acceptance_rates"]) == positions
            mean = sum(count * rounds for count, rounds in enumerate(accepted)) / sum(accepted)
            assert arm["acceptance_length"] == pytest.approx(1 + mean)
            assert sum(arm["per_position_acceptance_rates"]) == pytest.approx(mean)
        assert sixteen["acceptance_length"] > 1.3 * eight["acceptance_length"]
        assert sixteen["drafted_per_round"] > eight["drafted_per_round"] == 7

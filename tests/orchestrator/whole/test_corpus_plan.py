"""A slice of the corpus, with natural ends on nano, tells the time of more: `campaign plan` within a quarter."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.corpora.embedded import embedded
from campaigns.corpora.manifest import write

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

ROUNDING_S = 3.0  # of minutes with one digit


def campaign(folder: Path, action: str, corpus: Path) -> tuple[str, float]:
    """What the command printed, and its seconds."""
    command = [
        sys.executable, "-m", "orchestrator.cli", action, "campaign=corpus148", "server=embedded", "lease=cpu",
        f"lease.lock_dir={folder}/locks", "campaign.max_tokens=null", "startup.calibrate_s=0.5",
        "arm@campaign.control=columns-32", "arm@campaign.candidate=columns-128", "corpus=file", f"corpus.path={corpus}",
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout, time.monotonic() - began


def slice_of(folder: Path, count: int) -> Path:
    """Every n-th case, so that all data sets are in it."""
    whole = embedded()
    cases = whole.cases[:: len(whole.cases) // count][:count]
    return write(replace(whole, cases=cases), f"slice{count}", folder)[0]


def test_a_plan_tells_the_time_of_twenty_prompts_from_six(tmp_path: Path) -> None:
    campaign(tmp_path, "run", slice_of(tmp_path, 6))
    longer = slice_of(tmp_path, 20)
    planned, _ = campaign(tmp_path, "plan", longer)
    told = re.search(r"about ([\d.]+) min: .* \(14 recorded requests of corpus148 over these weights\)", planned)
    assert told is not None, planned
    _, took_s = campaign(tmp_path, "run", longer)
    print(f"told {60 * float(told[1]):.0f} s, took {took_s:.1f} s")
    assert 60 * float(told[1]) == pytest.approx(took_s, abs=0.25 * took_s + ROUNDING_S)

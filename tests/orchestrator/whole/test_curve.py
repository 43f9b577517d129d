"""The curve over context lengths as one campaign on nano; `campaign plan` has told its time before."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from results.history.forecast import costs
from results.store.reader import Reader

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

LENGTHS = (128, 384, 704)


def campaign(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "orchestrator.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def curve(folder: Path, startups: int, pairs: int) -> tuple[str, float]:
    """The campaign's id, and the seconds from its beginning to the end of its last startup."""
    campaign(
        folder, "run", "campaign=curve27b", "server=embedded", "server.prompt_state=snapshot", "lease=cpu",
        f"fixtures.curve.lengths={list(LENGTHS)}", "fixtures.curve.caps=[64, 48, 48]", "startup.calibrate_s=0.5",
        "arm@campaign.control=columns-32", "arm@campaign.candidate=columns-128", "campaign.warmups=1",
        f"campaign.startups={startups}", f"campaign.pairs={pairs}", f"lease.lock_dir={folder}/locks",
    )  # fmt: skip
    with Reader.open(folder / "outputs/campaigns.sqlite") as reader:
        name = reader.resolve("last")
        ends = [datetime.fromisoformat(life.end.ended_utc) for life in reader.lives(name) if life.end]
        return name, (max(ends) - datetime.fromisoformat(reader.campaign(name).created_utc)).total_seconds()


def test_a_curve_is_measured_on_restored_prompts_and_its_time_was_told_before(tmp_path: Path) -> None:
    small, _ = curve(tmp_path, startups=1, pairs=2)
    with Reader.open(tmp_path / "outputs/campaigns.sqlite") as reader:
        told_s = 3600 * costs(reader, small).hours(startups=2, pairs=4)
    name, took_s = curve(tmp_path, startups=2, pairs=4)
    assert told_s == pytest.approx(took_s, rel=0.25)
    told = json.loads(campaign(tmp_path, "report", name, "--format", "json"))
    assert (told["n_pairs"], told["n_exact_pairs"]) == (24, 24)
    markdown = campaign(tmp_path, "report", name)
    rows = [line.split(" | ") for line in markdown.split("## Context")[1].split("##")[0].splitlines() if "|" in line]
    assert [row[0].strip("| ") for row in rows[2:]] == [str(length) for length in LENGTHS]
    assert "prompt-restored: 48 requests" in markdown
    assert "the same again: 2 startups of 4 pairs, about" in campaign(tmp_path, "plan", "--from", name)

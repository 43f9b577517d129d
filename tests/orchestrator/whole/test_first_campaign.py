"""docs/first_campaign.md is run as a newcomer runs it: every command of it, in an empty folder, in its order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.checkouts.places import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]
PAGE = (ROOT / "docs" / "first_campaign.md").read_text()
VERDICTS = (0, 2, 5)  # a busy host may see the candidate slower, and doctor may find a fault of the machine


def steps() -> list[tuple[str, list[str]]]:
    """Each command with the lines that the page shows under it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.+?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def test_the_page_from_its_first_command_to_its_last(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80"}
    told: dict[str, str] = {}
    for command, shown in steps():
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode in (VERDICTS if "run" in command or "doctor" in command else (0,)), done.stderr
        assert "Traceback" not in done.stderr
        assert [line for line in shown if line not in done.stdout.splitlines()] == [], command
        told[command] = done.stdout
    runs = [text for command, text in told.items() if command.startswith("campaign run")]
    assert all("all 24 pairs exact" in text.splitlines()[0] for text in runs)
    page = (tmp_path / "report.html").read_text()
    assert "quick against mine-control (args: --round-ms 4 -&gt; --round-ms 2)" in page
    reports = list((tmp_path / "outputs").glob("*/report.md"))
    assert len(reports) == 2
    last = subprocess.run(
        ["campaign", "report", "last", "--format", "json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert json.loads(last.stdout)["arms"] == {"control": "mine-control", "candidate": "quick"}
    assert len([command for command, _ in steps() if command.startswith("campaign")]) >= 8


def test_the_page_shows_no_line_wider_than_a_terminal() -> None:
    for block in re.findall(r"```\w*\n(.+?)```", PAGE, re.DOTALL):
        assert all(len(line) <= 85 for line in block.splitlines()), block

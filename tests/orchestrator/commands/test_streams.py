"""Results on standard output, progress on standard error, in the format that was asked for."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from campaigns.errors import Exit
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from orchestrator.cli import main
from orchestrator.output.progress import Output, View
from results.reports.layout import lay_out
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

PLAN = CampaignPlan("piped", Arm("a"), Arm("b|c"), (Fixture("f", "{}", (0,)),), ServerPlan("null"), startups=3, pairs=2)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "store.sqlite"
    with Store.open(path) as writer:
        for seed in range(2):
            Driver(writer, replace(PLAN, seed=seed), lambda step, attempt: Script(Trajectory(30, 10, 19), 16.0)).run()
    return path


def read(format: str, text: str) -> list[dict[str, Any]]:
    """The rows again, by a reader of somebody else's."""
    if format == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    if format == "jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if format == "json":
        found = json.loads(text)
        return list(found) if isinstance(found, list) else [found]
    head, _, *rows = text.splitlines()
    names = [cell.strip() for cell in head.strip("|").split("|")]
    return [
        dict(zip(names, (cell.strip() for cell in row.replace("\\|", "/").strip("|").split("|")), strict=True))
        for row in rows
    ]


@pytest.mark.parametrize("format", ["md", "json", "jsonl", "csv"])
@pytest.mark.parametrize("words", [["status"], ["history"], ["compare", "ID", "last"]])
def test_every_format_holds_the_same_rows(
    words: list[str], format: str, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--format", "jsonl", "--store", str(store)]) == Exit.COMPLETE
    ids = [json.loads(line)["campaign_id"] for line in capfd.readouterr().out.splitlines()]
    words = [ids[0] if word == "ID" else word for word in words]
    assert main([*words, "--format", format, "--store", str(store)]) == Exit.COMPLETE
    assert [row["campaign_id"] for row in read(format, capfd.readouterr().out)] == ids


def test_a_report_in_one_line(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "last", "--format", "jsonl", "--store", str(store)]) == Exit.COMPLETE
    out = capfd.readouterr().out
    assert out.count("\n") == 1 and json.loads(out)["n_pairs"] == 6


def test_a_markdown_cell_cannot_end_its_column() -> None:
    assert lay_out("md", ("a", "b"), [("x|y", 1.5)]).splitlines()[2] == r"| x\|y | 1.5 |"


def test_a_reader_that_leaves_ends_nothing(store: Path) -> None:
    command = f"{sys.executable} -m orchestrator.cli history --format md --store {store} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("\n") == 1


def test_progress_is_lines_where_nothing_can_be_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for dumb, variables in ((True, {"TERM": "dumb"}), (True, {"CI": "true"}), (False, {})):
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        out = io.StringIO()
        with View(Console(file=out, force_terminal=True), PLAN).shown():
            pass
        assert ("\x1b" not in out.getvalue()) is dumb


def test_quiet_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    View(Output(quiet=True).console(), PLAN).say("progress")
    View(Output().console(), PLAN).say("told")
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "told\n")


def test_what_takes_its_time_is_told_in_lines_or_in_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for terminal in (False, True):
        out = io.StringIO()
        view = View(Console(file=out, force_terminal=terminal, width=120), PLAN)
        with view.shown():
            view.doing("starting Ray: some ten seconds")
            until = time.monotonic() + 60 * terminal  # the bar is drawn ten times a second
            while "starting Ray: some ten seconds" not in out.getvalue() and time.monotonic() < until:
                time.sleep(0.01)
        assert "starting Ray: some ten seconds" in out.getvalue()


@pytest.mark.parametrize("width", [60, pytest.param(400, marks=pytest.mark.acceptance)])
def test_a_history_fits_its_terminal_and_a_pipe_gets_all_of_it(store: Path, width: int) -> None:
    def asked(width: int, stdout: int) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "orchestrator.cli", "history", "--store", str(store)]
        environment = {**os.environ, "COLUMNS": str(width)}
        return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=environment, check=True)

    whole = asked(60, subprocess.PIPE)
    named = whole.stdout.decode().splitlines()[0].split()
    assert whole.stderr == b"" and "noise_floor_pct" in named
    main_fd, terminal_fd = pty.openpty()
    done = asked(width, terminal_fd)
    drawn = os.read(main_fd, 1 << 16).decode().splitlines()
    assert len(drawn) == 4 and max(map(len, drawn)) <= width
    left_out = done.stderr.decode().removeprefix("left out: ").partition(";")[0].split(", ")
    assert [name for name in named if name not in left_out] == drawn[0].split()
    assert {"fixture", "effect_pct", "verdict"} <= set(drawn[0].split()) and (width < 100) == bool(done.stderr)
    os.close(terminal_fd)
    os.close(main_fd)

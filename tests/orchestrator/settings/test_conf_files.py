"""A file of conf/ that cannot be read, or holds what no schema knows, is named with the line and the remedy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator.launch
import orchestrator.settings.conf_files
import orchestrator.settings.folders
from orchestrator.checkouts.places import CONF
from orchestrator.cli import main


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    copy = tmp_path / "conf"
    shutil.copytree(CONF, copy)
    for module in (orchestrator.settings.conf_files, orchestrator.launch, orchestrator.settings.folders):
        monkeypatch.setattr(module, "CONF", copy)
    monkeypatch.setattr(orchestrator.settings.conf_files, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    orchestrator.settings.folders.options.cache_clear()
    orchestrator.settings.folders.groups.cache_clear()
    yield copy
    orchestrator.settings.folders.options.cache_clear()
    orchestrator.settings.folders.groups.cache_clear()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name: mine\nschedules: {selection: keys\n", ", line 3: expected ',' or '}'"),
        (b"name: mine\nname: yours\n", ", line 2: found duplicate key name"),
        (b"name: mine\nschedules:\n  a: \xff\n", ", line 3: not UTF-8; save the file as UTF-8"),
        (b"- a\n- b\n", ": holds a list; write a mapping, as KEY: VALUE"),
        (b"3\n", ": holds a single value; write a mapping"),
        (b"name: a\x00b\n", ": unacceptable character #x0000"),
        (b"defaults: 3\n", ": defaults must be a list"),
        (b"name: mine\nschedule: {selection: keys}\n", ": there is no key schedule; did you mean schedules?"),
        (b"name: mine\nschedules: [a]\n", ": a list stands where a mapping is wanted"),
        (b"name: mine\nargs: 3\n", ": campaign.candidate.args: must be a list of words, as [one,two]"),
    ],
)
@pytest.mark.parametrize("command", ["plan", pytest.param("run", marks=pytest.mark.acceptance)])
def test_a_wrong_file_is_named(
    command: str, content: bytes, said: str, conf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (conf / "arm/mine.yaml").write_bytes(content)
    assert main([command, "arm@campaign.candidate=mine"]) == 1
    err = capfd.readouterr().err
    assert err.startswith(f"campaign: conf/arm/mine.yaml{said}") and err.count("\n") == 1


def test_a_wrong_file_ends_a_run_as_it_ends_a_plan(conf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = []
    for command in ("plan", "run"):
        for content in (b"name: mine\nname: yours\n", b"name: mine\nschedule: {selection: keys}\n"):
            (conf / "arm/mine.yaml").write_bytes(content)
            assert main([command, "arm@campaign.candidate=mine"]) == 1
            said.append(capfd.readouterr().err)
    assert said[:2] == said[2:] and "duplicate key" in said[0] and "did you mean schedules?" in said[1]


def test_a_wrong_file_that_nobody_chose_stops_nothing(conf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (conf / "arm/mine.yaml").write_text("{")
    assert main(["plan"]) == 0
    (conf / "config.yaml").write_text("defaults: [\n")
    assert main(["plan", "campaign=smoke"]) == 1
    assert "conf/config.yaml, line 2: " in capfd.readouterr().err

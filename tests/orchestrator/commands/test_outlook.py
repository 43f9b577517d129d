"""`campaign plan` counts what `run` would send, and starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.errors import Exit
from orchestrator.cli import main


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["plan", *words]) == Exit.COMPLETE
    return capsys.readouterr().out


def test_the_smoke_campaign_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = planned(capsys)
    assert "startups   2" in text and "pairs      16" in text and "32 measured, 8 warm-ups" in text
    assert "a guess: no campaign over these weights is recorded" in text
    assert not list(tmp_path.iterdir())


def test_a_corpus_campaign_warms_each_arm_once_per_startup(capsys: pytest.CaptureFixture[str]) -> None:
    text = planned(capsys, "campaign=corpus148", "--store", "/nowhere/c.sqlite")
    assert "pairs      148" in text and "296 measured, 2 warm-ups" in text


def test_bad_overrides_are_refused_as_run_refuses_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "campaign.pair=3"]) == Exit.USAGE
    assert "campaign.pair=3: there is no key campaign.pair; did you mean campaign.pairs?" in capsys.readouterr().err
    assert main(["plan", "campaign.pairs=3", "--from", "last"]) == Exit.USAGE

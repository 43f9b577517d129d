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
    text = planned(capsys, "campaign.stop=decided", "campaign.startups=16")
    assert "startups   3 to 16, as few as decide it; what follows is for 16" in text and "pairs      128" in text


def test_a_corpus_campaign_warms_each_arm_once_per_startup(capsys: pytest.CaptureFixture[str]) -> None:
    text = planned(capsys, "campaign=corpus148", "--store", "/nowhere/c.sqlite")
    assert "pairs      148" in text and "296 measured, 2 warm-ups" in text


def test_bad_overrides_are_refused_as_run_refuses_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "campaign.pair=3"]) == Exit.USAGE
    assert "campaign.pair=3: there is no key campaign.pair; did you mean campaign.pairs?" in capsys.readouterr().err
    assert main(["plan", "campaign.pairs=3", "--from", "last"]) == Exit.USAGE


def test_startups_side_by_side_take_their_share_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten startups, four at once: three rounds of them, 3/10 of the time but for what comes before the first."""
    one = planned(capsys, "campaign.startups=10", "lease=simulated")
    four = planned(capsys, "campaign.startups=10", "lease=simulated", "lease.parallel=4", "lease.per_host=4")
    minutes = [float(text.split("about ")[1].split(" min")[0]) for text in (one, four)]
    once = 10 / 60
    assert minutes[1] - once == pytest.approx(0.3 * (minutes[0] - once), abs=0.06)
    assert f"with 4 startups at once ({minutes[0]:.1f} min one at a time)" in four


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("lease.parallel=2",), "one host takes lease.per_host=1 startup at a time"),
        (("lease.parallel=2", "lease.per_host=2", "lease.uuids=[GPU-5]"), "the devices of one startup are named"),
        (("lease.parallel=0",), "lease.parallel=0: must lie between 1"),
    ],
)
def test_what_cannot_run_side_by_side(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str) -> None:
    assert main(["plan", "lease=simulated", *words]) == Exit.USAGE
    assert told in capsys.readouterr().err

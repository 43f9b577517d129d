"""The command line's own words and codes: no library's exit code or usage text reaches the user."""

from __future__ import annotations

import pytest

from campaigns.errors import Exit, highest
from orchestrator.cli import main


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "campaign.pair=3"], "campaign.pair: Key 'pair' not in 'CampaignConfig'"),
        (["run", "campaign.pairs=many"], "campaign.pairs: Value 'many' of type 'str'"),
        (["run", "campaign.candidate.schedule.x=1"], "campaign.candidate.schedule: Key 'schedule' not in 'ArmConfig'"),
        (["run", "+campaign.foo=1"], "campaign.foo: Key 'foo' not in 'CampaignConfig'"),
        (["run", "+foo=1"], "foo: Key 'foo' not in 'Config'"),
        (["run", "--bogus"], "unknown flag --bogus"),
        (["run", "arm@campaign.candidate=nope"], "there is no arm/nope; choose arm= one of"),
        (["run", "campaign=nope"], "there is no campaign/nope"),
        (["run", "campaign.pairs"], "campaign.pairs"),
        (["run", "campaign.candidate.schedules={selection: nope}"], "selection has no schedule nope; known: keys"),
        (["run", "+campaign.candidate.schedules.warp=fast"], "unknown operator warp"),
        (["run", "server.model=/nowhere"], "server.model=/nowhere: no such folder"),
        (["run", "corpus=file", "corpus.path=/nowhere/corpus.json"], "/nowhere/corpus.json"),
        (["bogus"], "invalid choice: 'bogus'"),
        (["resume"], "the following arguments are required: ID"),
        (["report", "last", "--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_bad_input_gets_one_sentence_and_code_1(
    words: list[str],
    sentence: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert main(words) == Exit.USAGE
    captured = capfd.readouterr()
    assert sentence in captured.err and captured.err.count("\n") == 1 and "Traceback" not in captured.err


@pytest.mark.parametrize("command", ["resume", "status", "report"])
def test_a_missing_store_is_a_usage_error(command: str, tmp_path: object, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([command, "last", "--store", f"{tmp_path}/none.sqlite"]) == Exit.USAGE
    assert "none.sqlite" in capfd.readouterr().err


def test_a_multirun_job_that_fails_does_not_stop_the_others(
    capfd: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert main(["run", "--multirun", "server.model=/one,/two"]) == Exit.USAGE
    err = capfd.readouterr().err
    assert "server.model=/one" in err and "server.model=/two" in err


def test_cfg_prints_the_configuration_and_runs_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert main(["run", "--cfg", "job"]) == Exit.COMPLETE
    assert "startups: 2" in capfd.readouterr().out


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("orchestrator.cli.parser", broken)
    assert main(["status"]) == Exit.BUG
    assert "RuntimeError: boom" in capfd.readouterr().err


def test_an_interruption_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.cli.parser", interrupted)
    assert main(["status"]) == Exit.INTERRUPTED


def test_of_several_codes_the_documented_one_wins() -> None:
    order = [Exit.IDENTITY, Exit.WORLD, Exit.NOTHING_ADMISSIBLE, Exit.SLOWER, Exit.STRICT, Exit.COMPLETE]
    for rank, code in enumerate(order):
        assert highest(order[rank:][::-1]) is code
    assert highest([]) is Exit.COMPLETE

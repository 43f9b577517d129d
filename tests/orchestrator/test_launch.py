"""The command line's own words and codes: no library's exit code or usage text reaches the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.errors import Exit, highest
from orchestrator.cli import main


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "campaign.pair=3"], "campaign.pair=3: there is no key campaign.pair; did you mean campaign.pairs?"),
        (["run", "startups=3"], "did you mean campaign.startups?"),
        (["run", "sampling.temp=0"], "did you mean sampling.temperature?"),
        (["run", "sampling.zzz=0"], "sampling has temperature, top_k, top_p, min_p"),
        (["run", "campaign.pairs=many"], "campaign.pairs=many: must be a whole number"),
        (["run", "campaign.max_tokens=many"], "campaign.max_tokens=many: must be a whole number, or null"),
        (["run", "store.path=null"], "store.path=null: must be text"),
        (["run", "strict=perhaps"], "strict=perhaps: must be true or false"),
        (["run", "lease.indices=[a]"], "lease.indices=[a]: must be a list of whole numbers, as [0,1]"),
        (["run", "campaign.candidate.schedules=[a]"], "must be a mapping, as {key: value}"),
        (["run", "campaign.control=fast"], "must be a group of keys: name, schedules, env, args"),
        (["run", "campaign.candidate=selection-keys"], "did you mean arm@campaign.candidate=selection-keys?"),
        (["run", "server=command", "server.command=/bin/ls"], "server.command=/bin/ls: must be a list of words"),
        (["plan", "--effect", "2"], "--effect 2 is of a campaign like one with --from ID"),
        (["plan", "--half-width", "2"], "--half-width 2 says how precise a campaign with --from ID should be"),
        (["probe", "list"], "ACTION list: there are import"),
        (["run", "campaign.candidate.schedule.x=1"], "did you mean campaign.candidate.schedules?"),
        (["run", "campaign.candidate.schedules.gdn=cpu-bv8"], "with a plus, +campaign.candidate.schedules.gdn=cpu-bv8"),
        (["run", "fixtures.items=[{idd: a}]"], "idd: FixtureConfig has no key idd; did you mean id?"),
        (["run", "campaign.name=${oops}"], "Interpolation key 'oops' not found"),
        (["run", "+campaign.foo=1"], "+campaign.foo=1: there is no key campaign.foo; campaign has name, mode"),
        (["run", "+foo=1"], "+foo=1: there is no key foo; there are campaign, fixtures"),
        (["run", "campain=smoke"], "campain=smoke: there is no key campain; did you mean campaign?"),
        (["run", "~campaign.pairs"], "~campaign.pairs: a key cannot be left out"),
        (["run", "=3"], "=3 names no key"),
        (["run", "foo"], "foo is no setting: write KEY=VALUE"),
        (["run", ""], "'' is no setting"),
        (["run", "endpoint"], "endpoint is no setting: did you mean campaign=endpoint?"),
        (["run", "campaign.pairs"], "campaign.pairs is no setting: give it a value, as campaign.pairs=…"),
        (["run", "server.args=[--a"], "server.args=[--a cannot be read"),
        (["run", "campaign.seed=1,2"], "campaign.seed=1,2 names several values: add --multirun"),
        (["run", "--bogus"], "unknown flag --bogus"),
        (["run", "--cfg"], "argument --cfg/-c: expected one argument; see campaign run --help"),
        (["run", "--cfg", "jobs"], "invalid choice: 'jobs'"),
        (["run", "--store"], "argument --store: expected one argument; see campaign run --help"),
        (["run", "--config-name", "none"], "Cannot find primary config 'none'"),
        (["run", "arm@campaign.candidate=nope"], "there is no arm/nope; there are accept-cpu-verdict"),
        (["run", "arm@campaign.candidate=cpu-tunned"], "there is no arm/cpu-tunned; did you mean cpu-tuned?"),
        (["run", "arm=cpu-tuned"], "choose arm@campaign.control=… or arm@campaign.candidate=…"),
        (["run", "campaign=nope"], "campaign=nope: there is no campaign/nope; there are corpus148"),
        (["run", "campaign=3"], "there is no campaign/3"),
        (["run", "corpus=null"], "there is no corpus/null; there are embedded, file, none"),
        (["run", "+server=vllm"], "server is chosen already; drop the plus"),
        (["run", "--multirun", "campaign=smoke,smok"], "there is no campaign/smok; did you mean smoke?"),
        (
            ["run", "--store", "no such/it's a=b, [c].sqlite"],
            "there is no folder no such for the store it's a=b, [c].sqlite",
        ),
        (["run", "store.path=nowhere/c.sqlite"], "there is no folder nowhere for the store c.sqlite"),
        (["run", "--store", "."], "the store . is a folder: name a file in it"),
        (["run", "campaign.candidate.schedules={selection: nope}"], "selection has no schedule nope; known: keys"),
        (["run", "+campaign.candidate.schedules.warp=fast"], "unknown operator warp"),
        (["run", "server.model=/nowhere"], "server.model=/nowhere: no such folder"),
        (["run", "corpus=file", "corpus.path=/nowhere/corpus.json"], "/nowhere/corpus.json"),
        (["bogus"], "COMMAND bogus: there are run, resume, stop"),
        (["reprot", "last"], "COMMAND reprot: did you mean report?"),
        (
            ["promote", "cpu-tuned", "--by", "a", "--reason", "b", "--decision", "yes"],
            "--decision yes: there are pro",
        ),
        (["resume"], "the following arguments are required: ID"),
        (["report", "last", "--bogus"], "campaign report takes no --bogus; see campaign report --help"),
        (["status", "last", "first"], "campaign status takes no first; see campaign status --help"),
    ],
)
def test_bad_input_gets_one_sentence_and_code_1(
    words: list[str],
    sentence: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == Exit.USAGE
    assert not list(tmp_path.rglob("*.sqlite"))
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
    assert "campaign: server.model=/one: " in err and "campaign: server.model=/two: " in err  # which job it was


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

"""Every subcommand explains every word that it takes, and says one helpful sentence about what it cannot do."""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator.diagnosis.doctor
from campaigns.errors import Exit
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from orchestrator.cli import main, parser
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

PLAN = CampaignPlan("t", Arm("a"), Arm("b"), (Fixture("f", "{}", (1,)),), ServerPlan("null"), startups=1, pairs=1)


def commands(under: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in under._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield each
                yield from commands(each)


ALL = {each.prog: each for each in commands(parser())}


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        ("tag a --by ann b c", "tags", ["b", "c"]),
        ("tag a --remove b --by ann c", "tags", ["b", "c"]),
        ("tag --by ann a", "tags", []),
        ("note a --by ann -- -5", "text", "-5"),
        ("archive a --reason no b", "ids", ["a", "b"]),
        ("compare a --format csv b", "ids", ["a", "b"]),
        ("baseline set one a --note n b", "ids", ["a", "b"]),
        ("plan x=1 --config-dir d y=2", "overrides", ["x=1", "y=2"]),
        ("query --max-s 1 SELECT", "sql", "SELECT"),
        ("status --store s last", "id", "last"),
    ],
)
def test_words_behind_an_option_are_the_command_s_too(line: str, name: str, words: object) -> None:
    assert getattr(parser().parse_args(line.split()), name) == words


@pytest.mark.parametrize("name", sorted(ALL))
def test_help_says_what_the_command_does_and_what_each_word_means(name: str) -> None:
    assert ALL[name].description
    for action in ALL[name]._actions:
        if not isinstance(action, argparse._SubParsersAction):
            assert action.help, (name, action.dest)


# What each command needs beside --store to get as far as the store.
READERS = {
    "resume": ["last"],
    "stop": ["last"],
    "status": [],
    "serve": [],
    "report": ["last"],
    "verify": ["last"],
    "compare": ["last", "last"],
    "history": [],
    "trend": ["pages"],
    "query": ["SELECT 1"],
    "baseline set": ["one", "last"],
    "baseline drop": ["one", "last", "--by", "a", "--reason", "b"],
    "baseline list": [],
    "floor": ["last", "--by", "a", "--reason", "b"],
    "tag": ["last", "nightly"],
    "note": ["last", "loud"],
    "archive": ["last", "--reason", "b"],
    "export": ["last", "--format", "csv"],
    "plan": ["--from", "last"],
    "gates": ["cpu-tuned"],
    "promote": ["cpu-tuned", "--by", "a", "--reason", "b"],
    "score": ["last"],
}
WRITERS = {"import": ["OTHER"], "probe import": ["LINES"]}
# As `run` does.
COMPOSED = {"race": ["columns-32", "torch-tuned"], "probe neighbours": ["campaign.mode=aa"], "bisect": ["A", "B"]}


def test_every_command_with_a_store_is_looked_at() -> None:
    with_store = {name.removeprefix("campaign ") for name, each in ALL.items() if "--store" in each.format_usage()}
    assert with_store == {*READERS, *WRITERS, *COMPOSED, "run"}


def refused(words: list[str], capfd: pytest.CaptureFixture[str], code: Exit = Exit.USAGE) -> str:
    assert main(words) == code, words
    captured = capfd.readouterr()
    assert captured.err.count("\n") == 1 and captured.err.startswith("campaign: ") and not captured.out, words
    return captured.err


@pytest.mark.parametrize("name", READERS)
def test_a_store_that_is_missing_or_something_else_is_named(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*name.split(), *READERS[name], "--store"]
    said = refused([*words, str(tmp_path / "none.sqlite")], capfd)
    assert f"no store at {tmp_path}/none.sqlite" in said and "name another file with --store" in said
    for file in foreign(tmp_path):
        assert f"{file} is not a store of campaigns" in refused([*words, str(file)], capfd)


@pytest.mark.parametrize("name", COMPOSED)
def test_what_composes_campaigns_makes_no_folder(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [*name.split(), *COMPOSED[name], "--store", str(tmp_path / "no/c.sqlite")]
    assert f"there is no folder {tmp_path}/no" in refused(words, capfd)


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_makes_no_folder_and_writes_to_no_foreign_file(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "LINES").write_text('{"gate": "contract", "subject": "cpu-tuned", "status": "passed"}')
    main(["probe", "import", str(tmp_path / "LINES"), "--store", str(tmp_path / "OTHER")])
    capfd.readouterr()
    words = [*name.split(), *(str(tmp_path / word) for word in WRITERS[name]), "--store"]
    assert f"there is no folder {tmp_path}/no" in refused([*words, str(tmp_path / "no/c.sqlite")], capfd)
    for file in foreign(tmp_path):
        assert f"{file} is not a store of campaigns" in refused([*words, str(file)], capfd)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("report last --output {folder}/no/x.md", "--output {folder}/no/x.md cannot be written (No such file"),
        ("report last --output {folder}", "--output {folder} cannot be written (Is a directory): name a file"),
        ("report last --format pdf", "--format pdf: there are md, json, jsonl, html, csv, github, junit; see"),
        ("export last --format csv --output {store}/x", "--output {store}/x cannot be written (Not a directory)"),
        ("export last --format vllm-bench --output {folder}/no/x", "--output {folder}/no/x cannot be written"),
        ("compare last last", "compare needs two campaigns or more, and last last is one"),
        ("query SELECT --max-rows 0", "argument --max-rows: 0: must be a whole number above 0"),
        ("query SELECT --max-s nan", "argument --max-s: nan: must be a number above 0"),
        ("plan --from last --half-width x", "argument --half-width: x: must be a number above 0"),
        ("import {store}", "{store} is the store itself"),
        ("status nobody", "no campaign is named 'nobody'; the newest are"),
        ("trend nothing", "no campaign measured 'nothing'; there are f"),
        ("stop last", "is complete, not running: there is nothing to stop"),
    ],
)  # fmt: skip
def test_a_wrong_word_on_a_store_is_one_sentence(
    words: str, said: str, store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    places = {"folder": tmp_path, "store": store}
    assert said.format(**places) in refused([*words.format(**places).split(), "--store", str(store)], capfd)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("lease list --lock-dir {folder}/no", Exit.USAGE, "--lock-dir {folder}/no: no such folder"),
        ("lease list --inventory abacus", Exit.USAGE, "there is no inventory abacus; lease.inventory is auto, nvml"),
        ("lease clear GPU-7 --inventory cpu --lock-dir {folder}", Exit.USAGE, "UUID names GPU-7, which is no device"),
        ("doctor --no-ray --inventory abacus", Exit.USAGE, "there is no inventory abacus"),
        ("doctor --no-ray --model {folder}/no", Exit.USAGE, "--model {folder}/no: no such folder"),
        ("run lease.lock_dir={folder}/no/locks lease.inventory=abacus", Exit.USAGE, "there is no inventory abacus"),
    ],
)  # fmt: skip
def test_a_wrong_word_about_this_machine_is_one_sentence_and_makes_no_folder(
    words: str,
    code: Exit,
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "orchestrator.diagnosis.doctor.CHECKS", orchestrator.diagnosis.doctor.CHECKS[3:4]
    )  # the devices
    assert said.format(folder=tmp_path) in refused(words.format(folder=tmp_path).split(), capfd, code)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "c.sqlite"
    with Store.open(path) as made:
        Driver(made, PLAN, lambda step, attempt: Script(Trajectory(12, 4, 6), 16.0)).run()
    return path


def foreign(folder: Path) -> tuple[Path, Path]:
    """A text and another program's database."""
    text, database = folder / "notes.txt", folder / "foreign.sqlite"
    text.write_text("not a database at all, but long enough to be looked at\n" * 40)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS other (x)")
    connection.close()
    return text, database


@pytest.mark.parametrize("kind", ["race", "bisect"])
def test_a_series_goes_on_alone_and_by_a_name_that_is_there(kind, tmp_path, capsys):
    store = ["--store", str(tmp_path / "store.sqlite")]
    assert main([kind, "other", "--resume", "last", *store]) == 1
    assert f"other: a {kind} goes on with the words it began with: --resume alone" in capsys.readouterr().err
    assert main([kind, "--resume", "nope", *store]) == 1
    assert f"nope: no {kind} of that name" in capsys.readouterr().err

"""Every subcommand explains every word that it takes, and says one helpful sentence about what it cannot do."""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.errors import Exit
from orchestrator.cli import main, parser


def commands(under: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in under._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield each
                yield from commands(each)


ALL = {each.prog: each for each in commands(parser())}


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
    "report": ["last"],
    "verify": ["last"],
    "compare": ["last", "last"],
    "history": [],
    "trend": ["pages"],
    "query": ["SELECT 1"],
    "baseline set": ["one", "last"],
    "baseline list": [],
    "export": ["last", "--format", "csv"],
    "plan": ["--from", "last"],
    "gates": ["cpu-tuned"],
    "promote": ["cpu-tuned", "--by", "a", "--reason", "b"],
    "score": ["last"],
}
WRITERS = {"import": ["OTHER"], "probe import": ["LINES"]}


def test_every_command_with_a_store_is_looked_at() -> None:
    with_store = {name.removeprefix("campaign ") for name, each in ALL.items() if "--store" in each.format_usage()}
    assert with_store == {*READERS, *WRITERS, "run"}


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


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_makes_no_folder_and_writes_to_no_foreign_file(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "LINES").write_text('{"gate": "contract", "subject": "a", "status": "passed"}')
    main(["probe", "import", str(tmp_path / "LINES"), "--store", str(tmp_path / "OTHER")])
    capfd.readouterr()
    words = [*name.split(), *(str(tmp_path / word) for word in WRITERS[name]), "--store"]
    assert f"there is no folder {tmp_path}/no" in refused([*words, str(tmp_path / "no/c.sqlite")], capfd)
    for file in foreign(tmp_path):
        assert f"{file} is not a store of campaigns" in refused([*words, str(file)], capfd)


def foreign(folder: Path) -> tuple[Path, Path]:
    """A text and another program's database."""
    text, database = folder / "notes.txt", folder / "foreign.sqlite"
    text.write_text("not a database at all, but long enough to be looked at\n" * 40)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS other (x)")
    connection.close()
    return text, database

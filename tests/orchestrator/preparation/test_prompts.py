"""Prompt ids and budgets, counted without the server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from campaigns.errors import UsageError
from campaigns.plan import Fixture
from orchestrator.preparation.prompts import Checkpoint, budget

TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}go{% endif %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    vocabulary = {"go": 0, "one": 1, "two": 2, "?": 3}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 64}}))
    return tmp_path


def chat(text: str) -> Fixture:
    return Fixture("f", json.dumps({"messages": [{"role": "user", "content": text}]}), (0,))


def test_a_chat_is_rendered_by_its_template(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    assert checkpoint is not None and checkpoint.capacity == 64
    assert checkpoint.ids(chat("one two")) == (1, 2, 0)


def test_a_separate_template_file_wins(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("two")
    checkpoint = Checkpoint.open(folder)
    assert checkpoint is not None and checkpoint.ids(chat("one")) == (2,)


def test_text_and_token_prompts(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    assert checkpoint is not None
    assert checkpoint.ids(Fixture("t", '{"prompt": "two one"}', (0,), chat=False)) == (2, 1)
    assert checkpoint.ids(Fixture("i", '{"prompt": [9, 8]}', (0,), chat=False)) == (9, 8)


def test_a_template_that_refuses_is_bad_input(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    checkpoint = Checkpoint.open(folder)
    assert checkpoint is not None
    with pytest.raises(UsageError, match=r"fixture f: .*no system role"):
        checkpoint.ids(chat("one"))


def test_a_tokenizer_file_that_asks_for_truncation_does_not_get_it(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(folder / "tokenizer.json"))
    checkpoint = Checkpoint.open(folder)
    assert checkpoint is not None and checkpoint.ids(chat("one two one")) == (1, 2, 1, 0)


def test_templates_write_json_as_servers_do(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    assert checkpoint is not None
    body = json.dumps({"messages": [], "tools": [{"b": "é<", "a": 1}]})
    for arguments, text in (("", '[{"b": "é<", "a": 1}]'), ("(separators=(',', ':'))", '[{"b":"é<","a":1}]')):
        written = replace(checkpoint, template="{{ tools | tojson" + arguments + " }}")
        assert written._render("f", json.loads(body)) == text


def test_named_templates_have_a_default(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "one"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    checkpoint = Checkpoint.open(folder)
    assert checkpoint is not None and checkpoint.ids(chat("")) == (1,)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("text", ["{", "[]"])
def test_damaged_files_of_a_checkpoint_are_named(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(UsageError, match=rf"{name}: .*fetch the checkpoint again"):
        Checkpoint.open(folder)


def test_a_folder_without_tokenizer_has_no_prompts(tmp_path: Path) -> None:
    assert Checkpoint.open(tmp_path) is None


def test_the_budget_is_what_is_left_or_the_cap() -> None:
    assert budget(chat("x"), 10, 64) == 54
    assert budget(Fixture("c", "{}", (0,), max_tokens=8), 10, 64) == 8


@pytest.mark.parametrize(
    ("fixture", "prompt"), [(Fixture("full", "{}", (0,)), 64), (Fixture("c", "{}", (0,), max_tokens=60), 10)]
)
def test_input_is_never_truncated_to_make_room(fixture: Fixture, prompt: int) -> None:
    with pytest.raises(UsageError, match=rf"fixture {fixture.id}: "):
        budget(fixture, prompt, 64)

"""What is written is what runs: a word that looks like a number stays the word where text is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.errors import UsageError
from orchestrator.checkouts.places import CONF
from orchestrator.launch import composed
from orchestrator.settings.texts import check_texts, quoted

SERVER = (
    "server=command",
    "server.command=[python,s.py,'{port}']",
    "campaign.mode=aa",
    "arm@campaign.control=default",
    "arm@campaign.candidate=default",
    "campaign.max_tokens=8",
)
WORDS = ("6e1234", "true", "8.10", "20261130_01", "1e5", "-3", "0x10", "010", "1_000", ".5", "nan", "inf", "False")


def test_words_reach_the_server_as_they_were_typed() -> None:
    env = [f"+server.env.W{number}={word}" for number, word in enumerate(WORDS)]
    plan = composed([*SERVER, *env, f"server.args=[{','.join(WORDS)}]"]).plan
    assert sorted(word for _, word in plan.server.env) == sorted(WORDS) == sorted(plan.server.args)
    assert {name: WORDS[int(name[1:])] for name, _ in plan.server.env} == dict(plan.server.env)


@pytest.mark.parametrize("word", ["6e1234", "true", "20261130_01"])
def test_a_campaign_is_called_as_it_was_typed(word: str) -> None:
    assert composed([*SERVER, f"campaign.name={word}"]).plan.name == word


def test_words_inside_a_mapping_are_followed_by_their_types() -> None:
    words = [f"+campaign.{role}={{name: 8.10, env: {{A: true}}}}" for role in ("control", "candidate")]
    plan = composed([*SERVER, "startup=co_resident", *words, "server.env={B: 1e3}"]).plan
    assert (plan.control.name, plan.control.env, plan.server.env) == ("8.10", (("A", "true"),), (("B", "1e3"),))


@pytest.mark.parametrize(
    "word",
    [
        "campaign.pairs=4",
        "store.path=null",
        "campaign.name='8.10'",
        "campaign.name=${oc.env:HOME}",
        "startup.calibrate_s=0.50",
        "fixtures.items=[{id: a, seeds: [1, 2], chat_template_kwargs: {enable_thinking: true}}]",
        "campaign.pairs=range(1,3)",
        "arm@campaign.control=default",
        "~server.env.A",
        "server.model=",
    ],
)
def test_what_is_no_text_or_is_already_stays_as_it_is(word: str) -> None:
    assert quoted(word) == word


def test_a_sweep_over_texts_is_one_too() -> None:
    assert quoted("campaign.name=8.10,true,x") == "campaign.name='8.10','true',x"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("env: {SHA: 0123}", r"line 1: env.SHA wants text and 0123 is none in YAML; write '0123'"),
        ("model: x\nargs:\n  - --rev\n  - 8.10\n", r"line 4: args wants text and 8.10 .*; write '8.10'"),
        ("command: [serve, true]", r"command wants text and true .*; write 'true'"),
    ],
)
def test_a_file_is_refused_with_the_form_to_write(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "server").mkdir()
    file = tmp_path / "server" / "mine.yaml"
    file.write_text(f"{text}\nadapter: command\n" if "command" in text else f"{text}\nadapter: command\ncommand: [a]\n")
    with pytest.raises(UsageError, match=told):
        composed([f"hydra.searchpath=[{tmp_path}]", "server=mine", *SERVER[2:]])


def test_a_file_may_say_numbers_where_numbers_are_wanted(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("items:\n  - {id: a, prompt: 'x', seeds: [1, 2], chat_template_kwargs: {n: 3, on: true}}\n")
    check_texts(file, "fixtures")
    file.write_text("name: t\npairs: 3\nmax_tokens: null\ncontrol: {name: '8.10'}\n")
    check_texts(file, "campaign")


def test_the_presets_say_text_where_text_is_wanted() -> None:
    for path in CONF.rglob("*.yaml"):
        group = path.parent.name
        if group != "gates":
            check_texts(path, {"conf": "", "arm": "campaign.control"}.get(group, group))

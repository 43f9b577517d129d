"""Fixtures of one's own files: which records are chosen, what of a conversation is asked, what is passed over."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from campaigns.corpora.conversations import Choice, fixtures_from
from campaigns.errors import UsageError

TALK = [("human", "one?"), ("gpt", "1."), ("human", "two?"), ("gpt", "2."), ("human", "three?"), ("gpt", "3.")]


def sharegpt(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"id": "abc_0", "conversations": [{"from": who, "value": what} for who, what in turns]}


def write(folder: Path, records: list[dict[str, Any]], name: str = "own.jsonl") -> Path:
    path = folder / name
    text = json.dumps(records) if ".json" in name and "jsonl" not in name else "\n".join(map(json.dumps, records))
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["talk.json", "talk.jsonl", "talk.jsonl.gz"])
def test_a_conversation_is_asked_its_last_question_after_what_was_said(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, [sharegpt(*TALK)], name)
    [whole] = fixtures_from(path, Choice(1, seeds=(3, 4), max_tokens=9))
    said = json.loads(whole.body)["messages"]
    assert [(m["role"], m["content"]) for m in said] == [
        ("user", "one?"),
        ("assistant", "1."),
        ("user", "two?"),
        ("assistant", "2."),
        ("user", "three?"),
    ]
    assert (whole.id, whole.seeds, whole.max_tokens, whole.chat) == ("talk-0", (3, 4), 9, True)
    [two] = fixtures_from(path, Choice(1, turns=2))
    assert [m["content"] for m in json.loads(two.body)["messages"]] == ["one?", "1.", "two?"]


def test_the_choice_is_the_seeds_alone(tmp_path: Path) -> None:
    path = write(tmp_path, [{"prompt": f"p{i}"} for i in range(50)])
    chosen = [[f.id for f in fixtures_from(path, Choice(5, seed))] for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2] and len(set(chosen[0])) == 5
    assert [int(name.removeprefix("own-")) for name in chosen[0]] == sorted(
        int(name.removeprefix("own-")) for name in chosen[0]
    )
    assert all(not f.chat and "prompt" in json.loads(f.body) for f in fixtures_from(path, Choice(5)))


def test_a_prompt_that_comes_twice_is_one(tmp_path: Path) -> None:
    path = write(tmp_path, [{"prompt": p} for p in ("a", "b", "a", "a", "c")])
    assert [f.id for f in fixtures_from(path, Choice(3))] == ["own-0", "own-1", "own-4"]
    with pytest.raises(UsageError, match=r"count=4: .* has 5 records, and 3 different ones can be asked"):
        fixtures_from(path, Choice(4))


def test_what_nobody_can_be_asked_is_passed_over(tmp_path: Path) -> None:
    records = [
        sharegpt(("gpt", "a cut beginning"), *TALK),  # its beginning goes, the rest is asked
        sharegpt(("gpt", "nobody asks")),
        sharegpt(("human", "a"), ("human", "b")),
        sharegpt(("human", "  ")),
        sharegpt(),
        sharegpt(("human", "a"), ("function_call", "f()"), ("human", "b")),
        {"messages": [{"role": "system", "content": "be short"}, {"role": "user", "content": "q"}]},
        {"prompt": ""},
    ]
    path = write(tmp_path, records)
    assert [f.id for f in fixtures_from(path, Choice(2))] == ["own-0", "own-6"]
    with pytest.raises(UsageError, match=r"count=3: .* has 8 records, and 2 different ones can be asked"):
        fixtures_from(path, Choice(3))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"question": "q"}, "own.jsonl, record 0: it has none of messages, conversations or prompt"),
        ({"conversations": "x"}, "conversations"),
        ({"conversations": [{"from": "human", "value": 3}]}, "a turn of conversations needs the texts from and value"),
        ({"messages": [{"role": "user"}]}, "a turn of messages needs the texts role and content"),
        ({"prompt": 3}, "prompt"),
    ],
)
def test_what_is_no_conversation_is_named(record: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        fixtures_from(write(tmp_path, [record]), Choice(1))

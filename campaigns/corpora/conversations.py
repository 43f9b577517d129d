"""Speed fixtures out of a file of one's own: JSON lines of messages or prompts, and conversations as ShareGPT has them.

Of a conversation of several turns the last question is asked, and what was said before stands in front of it, the
recorded answers included: one request of the length that the conversation had by then. What no server can be asked
(nobody asks, an empty turn, two turns of one speaker in a row) is passed over, and counted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.corpora.source import Source
from campaigns.errors import UsageError
from campaigns.plan import Fixture

_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "assistant"), "assistant"),
    "system": "system",
}
_KINDS = "messages, conversations or prompt"


@dataclass(frozen=True)
class Choice:
    """Which of a file's records become fixtures, and how they are asked."""

    count: int
    seed: int = 0  # of the choice
    turns: int | None = None  # questions of a conversation; None: all that it has
    seeds: tuple[int, ...] = (0,)  # of the server's sampling
    max_tokens: int | None = None


def fixtures_from(path: Path, choice: Choice) -> tuple[Fixture, ...]:
    """`count` of them in the file's order, named FILE-RECORD; equal files, counts and seeds choose the same.

    A prompt that a file holds twice is one: as two it would be evidence of two.
    """
    source = Source.open(path)
    found = ((i, _body(source, i, choice.turns)) for i in range(len(source.records)))
    first = {json.dumps(body, ensure_ascii=False): i for i, body in reversed([*found]) if body is not None}
    if len(first) < choice.count:
        raise UsageError(
            f"fixtures.file.count={choice.count}: {path} has {len(source.records)} records, and {len(first)} different "
            "ones can be asked: lower it, or fixtures.file.turns"
        )
    bodies = {i: text for text, i in first.items()}
    chosen = sorted(random.Random(choice.seed).sample(sorted(bodies), choice.count))
    name = path.name.partition(".")[0]
    return tuple(
        Fixture(
            f"{name}-{i}",
            bodies[i],
            choice.seeds,
            max_tokens=choice.max_tokens,
            chat=bodies[i].startswith('{"messages"'),
        )
        for i in chosen
    )


def _body(source: Source, record: int, turns: int | None) -> dict[str, Any] | None:
    """The request's own part; None for what nobody can be asked, UsageError for what is no conversation."""
    raw = source.records[record]
    if "messages" in raw or "conversations" in raw:
        messages = _asked(list(_messages(source, record, raw)), turns)
        return {"messages": messages} if messages else None
    if "prompt" in raw:
        (prompt,) = source.need(record, prompt=str)
        return {"prompt": prompt} if prompt.strip() and turns in (None, 1) else None
    raise source.wrong(record, f"it has none of {_KINDS}, but {sorted(raw)[:8]}")


def _messages(source: Source, record: int, raw: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    said, who, what = ("messages", "role", "content") if "messages" in raw else ("conversations", "from", "value")
    (turns,) = source.need(record, **{said: list})
    for turn in turns:
        role, content = (turn.get(who), turn.get(what)) if isinstance(turn, dict) else (None, None)
        if not isinstance(role, str) or not isinstance(content, str):
            raise source.wrong(record, f"a turn of {said} needs the texts {who} and {what}")
        yield {"role": _ROLES.get(role, role), "content": content}


def _asked(messages: Sequence[dict[str, str]], turns: int | None) -> list[dict[str, str]]:
    """Up to the last question that is wanted; nothing where it cannot be asked."""
    first = next((i for i, m in enumerate(messages) if m["role"] != "assistant"), len(messages))  # a cut beginning
    kept = list(messages[first:])
    asked = [i for i, message in enumerate(kept) if message["role"] == "user"]
    if not asked or (turns is not None and len(asked) < turns):
        return []
    kept = kept[: (asked[-1] if turns is None else asked[turns - 1]) + 1]
    start = 1 if kept[0]["role"] == "system" else 0
    alternating = [message["role"] for message in kept[start:]] == [
        ("user", "assistant")[i % 2] for i in range(len(kept) - start)
    ]
    return kept if alternating and all(message["content"].strip() for message in kept) else []

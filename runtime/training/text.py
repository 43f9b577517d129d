"""Exercises to training rows: chat text through the model's own template, token ids, and which of them count.

Only what the assistant says is learnt, its end of turn included. Rows are laid end to end in lanes of one length, so
that every batch has the same shape; a token sees its own row alone. Knows no model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from runtime.text.tokenizer import ChatTemplate
from runtime.training import vocabulary
from runtime.training.tasks.exercise import Exercise, Pool, Template

IGNORED = -100
NO_ROW = -1
_SKIP_THINKING = 0.1


@dataclass(frozen=True)
class Row:
    """`ids` of one conversation; the assistant's part begins at `start`."""

    ids: list[int]
    start: int


@dataclass(frozen=True)
class Batch:
    """Lanes [B, T]: `ids`; `targets` is the next token where it counts, IGNORED elsewhere; `rows` numbers the rows of a
    lane from 0, with NO_ROW where it is padded."""

    ids: Tensor
    targets: Tensor
    rows: Tensor


def prompt_text(template: ChatTemplate, exercise: Exercise, thinking: bool) -> str:
    return template.render(exercise.messages(), list(exercise.tools) or None, True, enable_thinking=thinking)


def reply_text(exercise: Exercise, thinking: bool) -> str:
    """What the assistant says behind the prompt, which has opened the reasoning block if there is one."""
    reasoning = f"{exercise.thinking}\n</think>" if thinking else ""
    return reasoning + exercise.answer + _call_text(exercise) + vocabulary.END_OF_TURN


def _call_text(exercise: Exercise) -> str:
    calls = [f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {json.dumps(values)}}}\n</tool_call>'
             for name, values in exercise.calls]  # fmt: skip
    return "".join(calls)


def texts(templates: Sequence[Template], seed: int, count: int) -> Iterator[str]:
    """Plain text for the tokenizer's merges."""
    rng, pool = random.Random(seed), Pool(templates)
    for _ in range(count):
        _, exercise = pool.draw(rng)
        yield "\n".join((exercise.question, json.dumps(exercise.tools), exercise.thinking, exercise.answer))


class RowSource:
    """An endless, seeded stream of rows no longer than `max_length`."""

    def __init__(self, templates: Sequence[Template], tokenizer: Tokenizer, max_length: int, seed: int) -> None:
        self._pool = Pool(templates)
        self._tokenizer = tokenizer
        self._chat = ChatTemplate(vocabulary.CHAT_TEMPLATE, {})
        self._max_length = max_length
        self._rng = random.Random(seed)

    def take(self, count: int) -> list[Row]:
        rows = [self._row() for _ in range(count)]
        return [row for row in rows if len(row.ids) <= self._max_length]

    def _row(self) -> Row:
        _, exercise = self._pool.draw(self._rng)
        thinking = self._rng.random() >= _SKIP_THINKING
        prompt = self._encode(prompt_text(self._chat, exercise, thinking))
        return Row(prompt + self._encode(reply_text(exercise, thinking)), len(prompt))

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids


def lanes(rows: Sequence[Row], length: int) -> list[list[Row]]:
    """Rows into lanes of at most `length` tokens: the longest first, each into the fullest lane that has room."""
    room: list[list[list[Row]]] = [[] for _ in range(length + 1)]  # lanes by the tokens that still fit
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        size = len(row.ids)
        free = next((free for free in range(size, length + 1) if room[free]), length)
        lane = room[free].pop() if room[free] else []
        lane.append(row)
        room[free - size].append(lane)
    return [lane for same in room for lane in same]


def batches(rows: Sequence[Row], size: int, length: int, pad_id: int, seed: int) -> list[Batch]:
    """Shuffled batches [size, length]; lanes that fill no batch are left out."""
    packed = lanes(rows, length)
    random.Random(seed).shuffle(packed)
    whole = len(packed) // size * size
    return [collate(packed[i : i + size], length, pad_id) for i in range(0, whole, size)]


def collate(packed: Sequence[list[Row]], length: int, pad_id: int) -> Batch:
    ids = torch.full((len(packed), length), pad_id)
    targets, rows = torch.full_like(ids, IGNORED), torch.full_like(ids, NO_ROW)
    for index, lane in enumerate(packed):
        begin = 0
        for number, row in enumerate(lane):
            end, tokens = begin + len(row.ids), torch.tensor(row.ids)
            ids[index, begin:end], rows[index, begin:end] = tokens, number
            targets[index, begin + row.start - 1 : end - 1] = tokens[row.start :]
            begin = end
    return Batch(ids, targets, rows)

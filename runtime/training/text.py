"""Exercises to training rows: chat text through the model's own template, token ids, and which of them count.

Only what the assistant says is learnt, its end of turn included. Rows of similar length share a batch. Knows no model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from runtime.tokenizer import ChatTemplate
from runtime.training import vocabulary
from runtime.training.exercise import Exercise, Pool, Template

IGNORED = -100
_SKIP_THINKING = 0.1


@dataclass(frozen=True)
class Row:
    """`ids` of one conversation; the assistant's part begins at `start`."""

    ids: list[int]
    start: int


@dataclass(frozen=True)
class Batch:
    """`ids` [B, T] padded at the end; `targets` [B, T] is the next token where it counts, IGNORED elsewhere."""

    ids: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(self.ids.to(device, non_blocking=True), self.targets.to(device, non_blocking=True))


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


def batches(rows: Sequence[Row], tokens_per_step: int, pad_id: int, seed: int) -> list[Batch]:
    """Every row once, in batches of rows of like length, shuffled; B * T stays within `tokens_per_step`."""
    groups: list[list[Row]] = [[]]
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if groups[-1] and (len(groups[-1]) + 1) * len(row.ids) > tokens_per_step:
            groups.append([])
        groups[-1].append(row)
    random.Random(seed).shuffle(groups)
    return [_collate(group, pad_id) for group in groups if group]


def _collate(rows: Sequence[Row], pad_id: int) -> Batch:
    length = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), length), pad_id)
    targets = torch.full((len(rows), length), IGNORED)
    for index, row in enumerate(rows):
        tokens = torch.tensor(row.ids)
        ids[index, : len(tokens)] = tokens
        targets[index, row.start - 1 : len(tokens) - 1] = tokens[row.start :]
    return Batch(ids, targets)

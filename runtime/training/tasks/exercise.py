"""A worked exercise, and the split of templates into those trained on and those held out.

A template is a way to pose a kind of problem; its random generator fills in names and numbers. Held-out templates are
never trained on: they measure whether the model solves problems posed in a new way. Knows no tokens and no model.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Any

from runtime.training.tasks.corpus_prompts import repeats_corpus

HELD_OUT_PERCENT = 10


@dataclass(frozen=True)
class Exercise:
    """`thinking` is the worked way, `answer` what follows it; `expected` is what a checker compares with.

    `calls` are (tool name, arguments) that follow the answer.
    """

    question: str
    thinking: str
    answer: str
    expected: Any
    tools: Sequence[Mapping[str, Any]] = ()
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    response_format: Mapping[str, Any] | None = None

    def messages(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": self.question}]


@dataclass(frozen=True)
class Template:
    """`name` is unique within its `kind`: how the problem is posed, then `/` and a variant of the instruction.

    All variants of a problem fall on one side of the split. `check` says whether a model's visible answer is right.
    The text of an `edition` holds the templates of the earlier ones, too.
    """

    kind: str
    name: str
    pose: Callable[[random.Random], Exercise]
    check: Callable[[str, Exercise], bool]
    weight: float = 1.0
    edition: int = 1

    @property
    def held_out(self) -> bool:
        problem = self.name.rpartition("/")[0]
        digest = hashlib.sha256(f"{self.kind}/{problem}".encode()).digest()
        return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def both_editions(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Wordings with their edition; those of the first keep their numbers."""
    yield from zip(first, repeat(1))
    yield from zip(second, repeat(2))


def split(templates: Sequence[Template]) -> tuple[list[Template], list[Template]]:
    """Templates to train on, and those held out."""
    return [t for t in templates if not t.held_out], [t for t in templates if t.held_out]


class Pool:
    """Draws exercises that no corpus holds: first the kind, evenly, then a template of that kind by weight."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self.kinds = sorted({template.kind for template in templates})
        self._own = {kind: [t for t in templates if t.kind == kind] for kind in self.kinds}
        self._weights = {kind: list(accumulate(t.weight for t in own)) for kind, own in self._own.items()}

    def draw(self, rng: random.Random, kind: str | None = None) -> tuple[Template, Exercise]:
        kind = kind or rng.choice(self.kinds)
        while True:
            template = rng.choices(self._own[kind], cum_weights=self._weights[kind])[0]
            exercise = template.pose(rng)
            if not repeats_corpus(exercise.question):
                return template, exercise

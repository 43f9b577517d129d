"""A worked exercise, and the split of templates into those trained on and those held out.

A template is a way to pose a kind of problem; its random generator fills in names and numbers. Held-out templates are
never trained on: they measure whether the model solves problems posed in a new way. Knows no tokens and no model.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HELD_OUT_PERCENT = 10


@dataclass(frozen=True)
class Exercise:
    """`thinking` is the worked way, `answer` what follows it; `expected` is what a checker compares with."""

    question: str
    thinking: str
    answer: str
    expected: Any
    tools: Sequence[Mapping[str, Any]] = ()
    calls: Sequence[Mapping[str, Any]] = ()
    response_format: Mapping[str, Any] | None = None

    def messages(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": self.question}]


@dataclass(frozen=True)
class Template:
    """`name` is unique within its `kind`; `check` says whether a model's visible answer is right."""

    kind: str
    name: str
    pose: Callable[[random.Random], Exercise]
    check: Callable[[str, Exercise], bool]
    weight: float = field(default=1.0)

    @property
    def held_out(self) -> bool:
        digest = hashlib.sha256(f"{self.kind}/{self.name}".encode()).digest()
        return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def split(templates: Sequence[Template]) -> tuple[list[Template], list[Template]]:
    """Templates to train on, and those held out."""
    return [t for t in templates if not t.held_out], [t for t in templates if t.held_out]


def draw(templates: Sequence[Template], rng: random.Random) -> tuple[Template, Exercise]:
    """One exercise: first the kind, evenly, then a template of that kind by weight."""
    kinds = sorted({template.kind for template in templates})
    kind = rng.choice(kinds)
    own = [template for template in templates if template.kind == kind]
    template = rng.choices(own, [template.weight for template in own])[0]
    return template, template.pose(rng)

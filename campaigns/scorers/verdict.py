"""The answer that is judged, and the verdict on it. Words here are the stored ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Unjudgeable(Exception):
    """What the answer is held to is beyond this scorer; says nothing about the answer."""


class Judged(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    CAPPED = "capped"  # the token limit ended the answer: a failure, counted apart
    TIMEOUT = "timeout"  # a failure on this host, counted apart
    ERROR = "error"  # the scorer could not judge; never a pass
    INELIGIBLE = "ineligible"  # outside this denominator


@dataclass(frozen=True)
class Answer:
    """What a server sent, channels apart. Reasoning never scores."""

    text: str
    tool_calls_json: str = ""
    finish_reason: str | None = "stop"

    @property
    def capped(self) -> bool:
        return self.finish_reason == "length"

    @property
    def final_text(self) -> str:
        """The text behind inline reasoning; empty when the reasoning never ended."""
        _, closed, rest = self.text.rpartition("</think>")
        if closed:
            return rest
        return "" if "<think>" in self.text else self.text


@dataclass(frozen=True)
class Verdict:
    scorer: str  # the denominator: gsm8k, math500, humaneval/original, livecodebench/livecodebench-public …
    outcome: Judged
    details: Mapping[str, Any] = field(default_factory=dict)

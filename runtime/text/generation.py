"""What one request asks of the engine, and what one step of it answers, as the API process knows them.

The engine's own types stay in the engine's process; these travel through `runtime.workers.protocol` as plain JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0 and top_p 1 cut nothing; min_p 0 cuts nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Generation:
    """`max_tokens` counts generated tokens, the end-of-sequence token included.

    `grammar` is llguidance's, None for free text; it begins behind the token `grammar_after`, or at once.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    eos_ids: tuple[int, ...] = ()
    grammar: str | None = None
    grammar_after: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> Generation:
        return Generation(
            prompt_ids=tuple(value["prompt_ids"]),
            max_tokens=value["max_tokens"],
            sampling=Sampling(**value["sampling"]),
            eos_ids=tuple(value["eos_ids"]),
            grammar=value["grammar"],
            grammar_after=value["grammar_after"],
        )


@dataclass(frozen=True)
class Step:
    """One emission of the engine: `kind` is prefill, spec or q1. Durations are nanoseconds; `ended_ns` is a stamp."""

    kind: str
    token_ids: tuple[int, ...]
    rows: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_ns: int = 0
    verify_ns: int = 0
    sample_ns: int = 0
    commit_ns: int = 0
    total_ns: int = 0
    ended_ns: int = 0
    finish_reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> Step:
        known = {field.name: value[field.name] for field in fields(Step)}
        return Step(**{**known, "token_ids": tuple(value["token_ids"])})

    def details(self) -> dict[str, Any]:
        """The record of `metrics.rounds`."""
        names = ("kind", "rows", "drafted", "accepted", "draft_ns", "verify_ns", "sample_ns", "commit_ns", "total_ns")
        return {name: getattr(self, name) for name in names} | {"emitted": len(self.token_ids)}

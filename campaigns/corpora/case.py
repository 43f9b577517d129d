"""One frozen case: the rendered prompt and everything needed to judge an answer to it.

Key order of messages, tools and schemas is kept from source to wire, because a chat template prints it. Does not know
the datasets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


def compact_json(value: Any) -> str:
    """JSON text with the key order of `value`, pure ASCII: equal bytes on every machine."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def sha256_of(value: Any) -> str:
    return hashlib.sha256(compact_json(value).encode()).hexdigest()


@dataclass(frozen=True)
class TestSet:
    """One denominator: tests that are passed together or not at all.

    `program` is what `orchestrator.scoring.confined.judge` runs: `kind` "steps" (prelude, setup, bind, steps) or
    "stdin" (prelude, tests). A set with a reason in `ineligible` is counted and never scored.
    """

    __test__ = False  # not a test class, whatever pytest thinks of its name

    name: str  # original | evalplus | livecodebench | livecodebench-public | leetcodedataset | own
    program: Mapping[str, Any] = field(default_factory=dict)
    ineligible: str = ""


@dataclass(frozen=True)
class Case:
    id: str
    dataset: str
    source_sha256: str  # of the unpacked file that holds the record
    record_index: int  # its position there, from 0
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    response_format: Mapping[str, Any] | None = None
    answer: Any = None  # number or LaTeX text; for structured cases what a right answer holds
    tests: tuple[TestSet, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)  # cpu_s of one program, wall_s of one set

    @property
    def eligible(self) -> bool:
        """Whether every denominator of the dataset counts this case."""
        return not any(tests.ineligible for tests in self.tests)

    @property
    def sha256(self) -> str:
        return sha256_of(asdict(self))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"sha256": self.sha256}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Case:
        """The case as frozen; raises ValueError when its hash does not fit its content."""
        fields = {name: value for name, value in raw.items() if name != "sha256"}
        fields["messages"] = tuple(fields["messages"])
        fields["tools"] = tuple(fields["tools"])
        fields["tests"] = tuple(TestSet(**tests) for tests in fields["tests"])
        case = cls(**fields)
        if case.sha256 != raw["sha256"]:
            raise ValueError(f"case {case.id}: content has sha256 {case.sha256}, the file says {raw['sha256']}")
        return case

    def body(self) -> str:
        """The request's own part, as JSON text."""
        body: dict[str, Any] = {"messages": list(self.messages)}
        if self.tools:
            body["tools"] = list(self.tools)
        if self.response_format is not None:
            body["response_format"] = self.response_format
        return compact_json(body)

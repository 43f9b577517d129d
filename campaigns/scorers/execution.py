"""What a scorer asks of a sandbox and what it gets back. The sandbox itself is `orchestrator.scoring.sandbox`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Limits:
    cpu_s: float = 10.0  # of one program: a whole set of asserts, or one run on standard input
    wall_s: float = 60.0  # of a whole set
    memory_bytes: int = 2 << 30  # address space of a process, and resident memory of all together
    file_bytes: int = 32 << 20
    folder_bytes: int = 64 << 20
    processes: int = 64  # threads count, too
    open_files: int = 64
    output_bytes: int = 4 << 20

    @classmethod
    def of(cls, told: Mapping[str, float]) -> Limits:
        """The limits of a case, the rest by default."""
        return cls(**{name: type(getattr(cls, name))(value) for name, value in told.items()})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Job:
    program: Mapping[str, Any]  # TestSet.program
    source: str  # the answer's code
    limits: Limits = Limits()


@dataclass(frozen=True)
class TestResult:
    """passed | failed | error | timeout | memory | output-limit | crashed | not-run"""

    __test__ = False

    status: str
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """`broke` names what ended the sandbox as a whole (timeout, memory, no-verdict), empty when the judge finished."""

    results: tuple[TestResult, ...]
    broke: str = ""
    wall_s: float = 0.0
    mode: str = ""  # namespaces | weak

    @property
    def passed(self) -> bool:
        return not self.broke and bool(self.results) and all(result.status == "passed" for result in self.results)


class Executor(Protocol):
    def __call__(self, job: Job) -> Outcome: ...

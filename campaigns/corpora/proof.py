"""Whether a case can be passed: one published program has to pass what the prompt shows and what the scorer runs.

MBPP+ changed names, arguments or results of MBPP's tasks; where it did, no answer to the one prompt can pass the tests
of the other. Such a case is left out. Does not know how programs are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from campaigns.corpora.case import Case
from campaigns.corpora.manifest import PROVEN


class Prover(Protocol):
    """Whether one of the programs passes every set of tests of a case that is scored; the tests shown are among them.

    Raises WorldError where a limit ended one: that says something about this host, and nothing about the case.
    """

    def __call__(self, case: Case, programs: Sequence[str]) -> bool: ...


@dataclass
class Proof:
    """Asked in the order of choosing, so that only what is chosen, or would have been, is run."""

    prover: Prover | None  # None: every case may be chosen, and nothing is known
    solutions: Mapping[str, Sequence[str]]  # case id -> published programs
    left_out: dict[str, str] = field(default_factory=dict)  # case id -> why
    num_proven: int = 0
    num_unpublished: int = 0

    def __call__(self, case: Case) -> bool:
        """Whether the case may be chosen."""
        if self.prover is None or not case.tests:
            return True
        programs = self.solutions.get(case.id, ())
        if not programs:
            self.num_unpublished += 1
        elif self.prover(case, programs):
            self.num_proven += 1
        else:
            names = (tests.name for tests in case.tests if not tests.ineligible)
            self.left_out[case.id] = f"no published solution passes all of {' and '.join(names)}"
        return case.id not in self.left_out

    def header(self) -> dict[str, Any]:
        """What a corpus says of it: code cases with a program that passes, and those for which none is published."""
        counts = {"passed": self.num_proven, "unpublished": self.num_unpublished}
        return {"format": PROVEN, "proof": counts, "left_out": self.left_out}

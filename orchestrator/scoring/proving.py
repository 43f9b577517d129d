"""Runs published solutions of a case as `campaign score` runs answers: what freezing asks before it takes a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from campaigns.corpora.case import Case
from campaigns.errors import WorldError
from campaigns.scorers.code import score_code
from campaigns.scorers.execution import Executor
from campaigns.scorers.verdict import Answer, Judged, Verdict


@dataclass(frozen=True)
class SolutionRuns:
    """A `Prover`. The same files give the same corpus on every host, so a host that is too slow is no verdict."""

    run: Executor
    tell: Callable[[str], None] = lambda case: None  # of each case as it begins

    def __call__(self, case: Case, programs: Sequence[str]) -> bool:
        self.tell(case.id)
        limits: list[str] = []
        for program in reversed(programs):  # corrected ones stand last
            scored = [v for v in self._verdicts(case, program) if v.outcome is not Judged.INELIGIBLE]
            if all(verdict.outcome is Judged.PASSED for verdict in scored):
                return True
            limits += [v.scorer for v in scored if v.outcome is Judged.TIMEOUT or v.details.get("broke")]
        if limits:
            raise WorldError(
                f"{case.id}: a published solution reached a limit under {limits[0]}, so nothing is proven: "
                "freeze again on an idle host"
            )
        return False

    def _verdicts(self, case: Case, program: str) -> list[Verdict]:
        return score_code(case, Answer(f"```python\n{program}\n```"), self.run)

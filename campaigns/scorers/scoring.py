"""Every verdict on one answer, by what its case asks for. Pure: equivalence and execution are handed in."""

from __future__ import annotations

from campaigns.corpora.case import Case
from campaigns.scorers.answer import Equivalence, score_answer
from campaigns.scorers.code import score_code
from campaigns.scorers.execution import Executor
from campaigns.scorers.structured import score_structured
from campaigns.scorers.verdict import Answer, Verdict

VERSION = "2"  # raised whenever a verdict on the same answer may change


def score(case: Case, answer: Answer, equal: Equivalence, run: Executor) -> list[Verdict]:
    if case.tests:
        return score_code(case, answer, run)
    if case.tools or case.response_format:
        return [score_structured(case, answer)]
    return [score_answer(case.dataset, str(case.answer), answer, equal)]

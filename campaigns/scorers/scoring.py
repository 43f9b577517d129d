"""Every verdict on one answer, by what its case asks for. Pure: the executor of code and the process for texts are
handed in.
"""

from __future__ import annotations

from typing import Protocol

from campaigns.corpora.case import Case
from campaigns.scorers.answer import score_answer
from campaigns.scorers.code import score_code
from campaigns.scorers.execution import Executor
from campaigns.scorers.structured import score_structured
from campaigns.scorers.verdict import Answer, Verdict

VERSION = "5"  # raised whenever a verdict on the same answer may change


class TextScorer(Protocol):
    """`score_text` within limits of time and memory."""

    def __call__(self, case: Case, answer: Answer) -> Verdict: ...


def score(case: Case, answer: Answer, text: TextScorer, run: Executor) -> list[Verdict]:
    return score_code(case, answer, run) if case.tests else [text(case, answer)]


def score_text(case: Case, answer: Answer) -> Verdict:
    """The verdict on JSON, tool calls or a mathematical answer; it may take for ever on a hostile one."""
    if case.tools or case.response_format:
        return score_structured(case, answer)
    return score_answer(case.dataset, str(case.answer), answer)

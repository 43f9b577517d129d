"""Final answers of GSM8K and MATH: the last boxed expression, else the last number.

Equivalence is math-verify's business; it may hang or fill the memory on hostile LaTeX, so `Equivalence` is a function
that the caller supplies, and `orchestrator.equivalence` asks a process that can be ended.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Protocol

from campaigns.scorers.verdict import Answer, Judged, Verdict

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?|[-+]?\.\d+")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")


class Equal(StrEnum):
    YES = "yes"
    NO = "no"
    TIMEOUT = "timeout"
    ERROR = "error"


class Equivalence(Protocol):
    def __call__(self, wanted: str, given: str) -> Equal: ...


def score_answer(scorer: str, wanted: str, answer: Answer, equal: Equivalence) -> Verdict:
    given = final_answer(answer.final_text)
    details = {"given": (given or "")[:200], "wanted": wanted}
    if answer.capped:
        return Verdict(scorer, Judged.CAPPED, details)
    if given is None:
        return Verdict(scorer, Judged.FAILED, details | {"reason": "no final answer"})
    said = Equal.YES if wanted.strip() == given else equal(wanted, given)
    outcomes = {Equal.YES: Judged.PASSED, Equal.NO: Judged.FAILED, Equal.TIMEOUT: Judged.TIMEOUT}
    return Verdict(scorer, outcomes.get(said, Judged.ERROR), details)


def final_answer(text: str) -> str | None:
    """The last boxed expression with balanced braces, else the last number; None when there is neither."""
    boxed = [content for match in _BOXED.finditer(text) if (content := _braced(text, match.end())) is not None]
    if boxed:
        return boxed[-1].strip()
    numbers = _NUMBER.findall(text)
    return numbers[-1].replace(",", "") if numbers else None


def _braced(text: str, start: int) -> str | None:
    """What stands between the brace at `start` and its partner; None without one. Escaped braces do not count."""
    depth, position = 0, start
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : position]
        position += 1
    return None

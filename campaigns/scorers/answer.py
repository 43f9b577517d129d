"""Final answers of GSM8K and MATH: the last boxed expression, else the last number."""

from __future__ import annotations

import re

from campaigns.scorers.equivalence import Equal, equivalent
from campaigns.scorers.verdict import Answer, Judged, Verdict
from campaigns.scorers.wording import SCALES, SPACE, flat

_PLAIN = r"(?:(?:\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+(?!\w))?"
_MIXED = rf"\d+[ ]+\d+/\d+|(?:\d+{SPACE}*)?\\[dt]?frac(?:\{{-?\d+\}}\{{-?\d+\}}|\d\d)"
_SIGN = r"(?:(?<![\w)\]}])[-+])?"  # behind a digit, letter or bracket it is an operator or a hyphen: "pages 5-10"
_ON_ITS_OWN = r"(?<![\^_])(?<![\^_]\{)(?<!\bm)(?<!\b[ckm]m)(?<!\bft)"  # no exponent, no index: "18 cm^2", "18 m2"
_NUMBER = re.compile(rf"{_SIGN}{_ON_ITS_OWN}(?:{_MIXED}|{_PLAIN}(?:/\d+)?(?:\s+(?:{SCALES})(?![a-zA-Z]))?)")
_SIGN_AHEAD = re.compile(r"(?<![\w)\]}])-(\\?[$€£])(?=\d)")
_SPACES = ("\\,", "\\;", "\\:", "\\!")
_LEADING_SPACE = re.compile(r"(?:\s|\\[,;:!])*")
_MINUS = str.maketrans("\u2212", "-")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")


def score_answer(scorer: str, wanted: str, answer: Answer) -> Verdict:
    given = final_answer(answer.final_text)
    details = {"given": (given or "")[:200], "wanted": wanted}
    if answer.capped:
        return Verdict(scorer, Judged.CAPPED, details)
    if given is None:
        return Verdict(scorer, Judged.FAILED, details | {"reason": "no final answer"})
    said = Equal.YES if wanted.strip() == given else equivalent(wanted, given)
    outcomes = {Equal.YES: Judged.PASSED, Equal.NO: Judged.FAILED, Equal.ERROR: Judged.ERROR}
    return Verdict(scorer, outcomes[said], details)


def final_answer(text: str) -> str | None:
    """The last boxed expression that is closed and not empty, else the last number; None when there is neither."""
    text, partners = text.translate(_MINUS), _braces(text)
    starts = [match.end() for match in _BOXED.finditer(text) if match.end() in partners]
    boxed = [content for start in starts if (content := _trimmed(text[start + 1 : partners[start]]))]
    if boxed:
        return boxed[-1]
    numbers = _NUMBER.findall(_SIGN_AHEAD.sub(r"\1-", flat(text)))
    return re.sub(r"\{,\}|\\?,", "", numbers[-1]) if numbers else None


def _trimmed(text: str) -> str:
    """Without spaces, those of LaTeX too, and without the full stop of the sentence."""
    start, end = _LEADING_SPACE.match(text).end(), len(text)  # type: ignore[union-attr]  # it matches nothing, too
    while end > start:
        if text[end - 1].isspace() or text[end - 1] == ".":
            end -= 1
        elif text.endswith(_SPACES, start, end):
            end -= 2
        else:
            break
    return text[start:end]


def _braces(text: str) -> dict[int, int]:
    """Position of each opening brace -> that of its partner. Escaped braces do not count.

    One pass: a model that repeats itself opens thousands of boxes and closes none.
    """
    partners: dict[int, int] = {}
    open_braces: list[int] = []
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match[0] == "{":
            open_braces.append(match.start())
        elif match[0] == "}" and open_braces:
            partners[open_braces.pop()] = match.start()
    return partners

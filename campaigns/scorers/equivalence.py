"""Whether two mathematical answers mean the same: math-verify's judgement, with rules where it reads too much.

It may hang or fill the memory on hostile LaTeX and has no limits of its own: `campaigns.scorers.worker` runs it in a
process that can be ended.

math-verify takes the last number of a box that it cannot read as a whole, and the last side of an equation whatever
the other sides are. So here a box with several numbers must be readable, `17=18` is no 18, and digits apart are no sum.
The percent sign is a unit, which an answer may have or not, and a number in another base is another number, as in
MATH's own grader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import combinations
from typing import Any

_PERCENT = re.compile(r"\s*\\?%")
_BASE = re.compile(r"^[0-9a-zA-Z]+_\{?(\d+)\}?$")
_SPACE = r"(?:\\[,;:! ]|~|\s)+"
_THOUSANDS = re.compile(rf"(?<![\d.,])\d{{1,3}}(?:{_SPACE}\d{{3}})+(?!\d|\s*/)")
_DIGITS_APART = re.compile(rf"(?<![\d/_^])\d+{_SPACE}\d+(?!\d*\s*/)")  # `3 1/2` is one number
_APPROXIMATELY = re.compile(r"^\s*(?:[a-zA-Z](?:_\{?\w+\}?)?\s*)?\\(?:approx|simeq)(?![a-zA-Z])")
_DRESS = re.compile(r"\\(?:[Ll]arge|LARGE|[Hh]uge|displaystyle|q?quad|bf)(?![a-zA-Z])|\\pmod\s*(?:\d+|\{[^{}]*\})")
_ORDERED = re.compile(r"[<>≠≤≥]|\\(?:not|ne|neq|l[et]|leqs?|leqslant|g[et]|geqs?|geqslant|ll|gg|notin)(?![a-zA-Z])")
_LISTED = re.compile(r"[,;]|\\text\s*\{\s*(?:and|or)\s*\}")
_EQUALS = re.compile(r"(?<![\\<>!:])=|\\equiv(?![a-zA-Z])")
_UNIT = re.compile(r"\\(?:text|mathrm|mbox|operatorname)\s*\{[^{}]*\}|\\?[%$]|\\(?:circ|degree)(?![a-zA-Z])|°")
_ARITHMETIC = re.compile(r"(?:[-+*/^{}.\d\s]|\\(?:[dt]?frac|sqrt|cdot|times|div)(?![a-zA-Z]))+")
_DECIMAL = re.compile(r"[-+]?\d*\.(\d+)")


class Equal(StrEnum):
    YES = "yes"
    NO = "no"
    ERROR = "error"


def equivalent(wanted: str, given: str) -> Equal:
    """Whether two answers, LaTeX without its box or plain numbers, mean the same."""
    from math_verify import verify

    wanted_plain, given_plain = _plain(wanted), _plain(given)
    bases = {match[1] for text in (wanted_plain, given_plain) if (match := _BASE.match(text.replace(" ", "")))}
    if len(bases) > 1 or _DIGITS_APART.search(given_plain):
        return Equal.NO
    try:
        if _is_false(given):
            return Equal.NO
        if wanted_plain and _says(given_plain) == wanted_plain:
            return Equal.YES
        gold, answer = _read(wanted_plain), _read(given_plain)
        return Equal.YES if verify(gold, answer, timeout_seconds=None) else Equal.NO
    except Exception:  # whatever sympy raises on odd LaTeX: no verdict
        return Equal.ERROR


def _plain(text: str) -> str:
    """Without percent signs, moduli, sizes, an `\\approx` in front, and the spaces between groups of three digits."""
    text = _APPROXIMATELY.sub("", _DRESS.sub("", _PERCENT.sub("", text)))
    return _joined(text).strip()


def _joined(text: str) -> str:
    return _THOUSANDS.sub(lambda match: re.sub(_SPACE, "", match[0]), text)


def _read(text: str) -> list[Any]:
    """What math-verify makes of a box; its last resort, a number somewhere in it, only where there is just one."""
    readings = _parse(text, "first_match")
    readable = any(not isinstance(reading, str) for reading in readings)
    only_number = len(re.findall(r"\d+(?:\.\d+)?", text)) == 1 and not _ORDERED.search(text)
    return readings if readable or not only_number else _parse(text, "any_match")


def _parse(text: str, mode: Any) -> list[Any]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    forms = [LatexExtractionConfig(), ExprExtractionConfig()]
    return list(parse(f"\\boxed{{{text}}}", forms, parsing_timeout=None, extraction_mode=mode))


def _is_false(text: str) -> bool:
    """Whether it holds an equation of two numbers in the same unit that differ by more than their rounding.

    `0.18 = 18\\%` and `1 \\text{ h} = 60 \\text{ min}` are none.
    """
    for equation in _split(_LISTED, _joined(text)):
        sides = _split(_EQUALS, equation)
        numbers = [(side, value) for side in sides if len(sides) > 1 and (value := _number(side)) is not None]
        if any(_differ(*pair) for pair in combinations(numbers, 2)):
            return True
    return False


def _differ(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    from math_verify import verify

    (left, a), (right, b) = one, other
    if _UNIT.findall(left) != _UNIT.findall(right) or verify(a, b, timeout_seconds=None):
        return False
    return not abs(float(a) - float(b)) <= _rounding(left) + _rounding(right)


def _says(text: str) -> str:
    """The last side of an equation; the text itself where it is none, or a list."""
    return _split(_EQUALS, text)[-1].strip() if len(_split(_LISTED, text)) == 1 else text


def _number(side: str) -> Any:
    """The value of plain arithmetic, as a sympy number; None where it is anything else.

    math-verify reads `12(20)` as a mixed number, so brackets are left out.
    """
    bare = _UNIT.sub("", side)
    values = _parse(bare, "first_match") if _ARITHMETIC.fullmatch(bare) else []
    return next((value for value in values if getattr(value, "is_real", False) and value.is_number), None)


def _rounding(side: str) -> float:
    """Half a unit of the last place of a decimal fraction: `100/7 = 14.29` is written for an approximation."""
    decimal = _DECIMAL.fullmatch(side.strip())
    return 0.51 * 10.0 ** -len(decimal[1]) if decimal else 0.0


def _split(separator: re.Pattern[str], text: str) -> list[str]:
    """Parts of `text` between separators outside brackets."""
    parts, start = [], 0
    depths = list(_depths(text))
    for match in separator.finditer(text):
        if depths[match.start()] == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def _depths(text: str) -> Iterator[int]:
    """How many brackets are open before each character; intervals close with another kind than they open."""
    depth = 0
    for character in text:
        yield depth
        depth = max(0, depth + (character in "([{") - (character in ")]}"))

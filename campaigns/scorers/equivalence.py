"""Whether two mathematical answers mean the same: math-verify's judgement, and where it is not enough.

It may hang or fill the memory on hostile LaTeX and has no limits of its own: `campaigns.scorers.worker` runs it in a
process that can be ended.

math-verify takes the last number of a box that it cannot read as a whole, and the last side of an equation whatever
the other sides are. So here a box with several numbers must be readable, `17=18` is no 18, and digits apart are no sum.
Units and type faces are gone before it reads (`wording`), and numbers are compared here (`exact`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import combinations
from typing import Any

from campaigns.scorers.exact import are_numbers, differ
from campaigns.scorers.wording import SPACE, flat, joined, value_of, without_units

_BASE = re.compile(r"^([0-9a-zA-Z]+)_\{?(\d+)\}?$")
_DIGITS_APART = re.compile(rf"(?<![\d/_^])\d+{SPACE}+\d+(?!\d*\s*/)")
_ORDERED = re.compile(r"[<>≠≤≥]|\\(?:not|ne|neq|l[et]|leqs?|leqslant|g[et]|geqs?|geqslant|ll|gg|notin)(?![a-zA-Z])")
_LISTED = re.compile(r"[,;]|\\text\s*\{\s*(?:and|or)\s*\}|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])")
_EQUALS = re.compile(r"(?<![\\<>!:])=|\\equiv(?![a-zA-Z])")
_ARITHMETIC = re.compile(r"(?:[-+*/^{}.\d\s]|\\(?:[dt]?frac|sqrt|cdot|times|div)(?![a-zA-Z]))+")
_DECIMAL = re.compile(r"[-+]?\d*\.(\d+)")


class Equal(StrEnum):
    YES = "yes"
    NO = "no"
    ERROR = "error"


def equivalent(wanted: str, given: str) -> Equal:
    """Whether two answers, LaTeX without its box or plain numbers, mean the same."""
    wanted_value, given_value = value_of(wanted), value_of(given)
    if _other_base(wanted_value, given_value) or _DIGITS_APART.search(given_value):
        return Equal.NO
    try:
        if _is_false(flat(given)):
            return Equal.NO
        if wanted_value and value_of(_says(given_value)) == wanted_value:
            return Equal.YES
        return Equal.YES if _verified(_read(wanted_value), _read(given_value)) else Equal.NO
    except Exception:  # whatever sympy raises on odd LaTeX: no verdict
        return Equal.ERROR


def _verified(gold: list[Any], answer: list[Any]) -> bool:
    """Numbers are compared here; all else is math-verify's word, unless numbers in it certainly differ."""
    from math_verify import verify

    pairs = [
        (one, other) for one in gold for other in answer if not isinstance(one, str) and not isinstance(other, str)
    ]
    if any(differ(*pair) for pair in pairs):
        return False
    if any(are_numbers(*pair) for pair in pairs):
        return True
    return bool(verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True))


def _other_base(wanted: str, given: str) -> bool:
    """Digits in another base are another number; a base that was asked for need not be repeated."""
    one, other = _BASE.match(wanted.replace(" ", "")), _BASE.match(given.replace(" ", ""))
    if other is None:
        return False
    return one is None or one[2] != other[2]


def _read(text: str) -> list[Any]:
    """What math-verify makes of a box; its last resort, a number somewhere in it, only where there is just one."""
    readings = _parse(text, "first_match")
    readable = any(not isinstance(reading, str) for reading in readings)
    only_number = re.fullmatch(r"[^a-zA-Z\d]*\d+(?:\.\d+)?[^a-zA-Z\d]*", text) and not _ORDERED.search(text)
    return readings if readable or not only_number else _parse(text, "any_match")


def _parse(text: str, mode: Any) -> list[Any]:
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    # its own list of units has t, c and m, which are variables
    normal = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="all", equations=False
    )
    forms = [LatexExtractionConfig(normalization_config=normal), ExprExtractionConfig()]
    return list(parse(f"\\boxed{{{text}}}", forms, parsing_timeout=None, extraction_mode=mode))


def _is_false(text: str) -> bool:
    """Whether it holds an equation of two numbers in the same unit that differ by more than their rounding.

    `0.18 = 18\\%` and `1 \\text{ h} = 60 \\text{ min}` are none.
    """
    for equation in _split(_LISTED, joined(text)):
        sides = _split(_EQUALS, equation)
        numbers = [(side, value) for side in sides if len(sides) > 1 and (value := _number(side)) is not None]
        if any(_differ(*pair) for pair in combinations(numbers, 2)):
            return True
    return False


def _differ(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    from math_verify import verify

    (left, a), (right, b) = one, other
    if _unit(left) != _unit(right) or verify(a, b, timeout_seconds=None):
        return False
    return not abs(float(a) - float(b)) <= _rounding(left) + _rounding(right)


def _unit(side: str) -> str:
    value = without_units(side).strip()
    before, _, behind = side.partition(value)
    return re.sub(r"\s+", " ", f"{before}{behind}").strip()


def _says(text: str) -> str:
    """The last side of an equation; the text itself where it is none, or a list."""
    return _split(_EQUALS, text)[-1].strip() if len(_split(_LISTED, text)) == 1 else text


def _number(side: str) -> Any:
    """The value of plain arithmetic, as a sympy number; None where it is anything else.

    math-verify reads `12(20)` as a mixed number, so brackets are left out.
    """
    bare = without_units(side)
    values = _parse(bare, "first_match") if _ARITHMETIC.fullmatch(bare) else []
    return next((value for value in values if getattr(value, "is_real", False) and value.is_number), None)


def _rounding(side: str) -> float:
    """Half a unit of the last place of a decimal fraction: `100/7 = 14.29` is written for an approximation."""
    decimal = _DECIMAL.fullmatch(without_units(side).strip())
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

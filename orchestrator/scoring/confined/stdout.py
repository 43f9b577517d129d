"""Whether a program printed what was wanted: LiveCodeBench's rule, lines first, then numbers.

Lines are compared without white space at their ends. A line that differs still counts when all its words are decimal
numbers of equal values (1.50 for 1.5).
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation


def same_output(printed: str, wanted: str) -> bool:
    left, right = _lines(printed), _lines(wanted)
    return len(left) == len(right) and all(a == b or _same_numbers(a, b) for a, b in zip(left, right, strict=True))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(a: str, b: str) -> bool:
    try:
        numbers = [[Decimal(word) for word in line.split()] for line in (a, b)]
        return numbers[0] == numbers[1]
    except InvalidOperation:
        return False

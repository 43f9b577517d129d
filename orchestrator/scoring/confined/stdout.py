"""Whether a program printed what was wanted: LiveCodeBench's rule, lines first, then numbers.

Lines are compared without white space at their ends. A line that differs still counts when all its words are decimal
numbers of equal values (1.50 for 1.5). Where a number with a fraction is wanted the problem's tolerance holds, absolute
or relative as its own checker has it.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

TOLERANCE = Decimal("1e-5")  # what LiveCodeBench's problems state whose results are called, too


def same_output(printed: str, wanted: str, relative: float = 0.0) -> bool:
    """`relative`: absolute or relative error that the problem states; 0 where it states none, then 1e-5 absolute."""
    left, right = _lines(printed), _lines(wanted)
    return len(left) == len(right) and all(
        a == b or _same_numbers(a, b, Decimal(relative)) for a, b in zip(left, right, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(printed: str, wanted: str, relative: Decimal) -> bool:
    try:
        left, right = ([Decimal(word) for word in line.split()] for line in (printed, wanted))
        return len(left) == len(right) and all(_close(a, b, relative) for a, b in zip(left, right, strict=True))
    except InvalidOperation:  # no number, or one that compares with none
        return False


def _close(printed: Decimal, wanted: Decimal, relative: Decimal) -> bool:
    """Exact where an integer is wanted."""
    if not printed.is_finite() or not isinstance(exponent := wanted.as_tuple().exponent, int) or exponent >= 0:
        return printed == wanted
    allowed = relative * max(Decimal(1), abs(wanted)) if relative else TOLERANCE
    return abs(printed - wanted) <= allowed

"""Whether two sympy values differ as numbers: exactly, and only where one side is a decimal by its relative rounding.

math-verify rounds differences to decimal places, so that 2^-87 equals 2^-88 for it; here its word is vetoed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Relative, where one side is a decimal: six digits of a number that no decimal can write are an answer, three are not;
# a number that a decimal can write is that decimal, but for the noise of a calculation in doubles.
TOLERANCE, NOISE = 1e-6, 1e-9
# Irrational numbers whose difference nobody simplifies: computed to so many digits, it is zero below half of them.
_DIGITS = 120


def differ(wanted: Any, given: Any) -> bool:
    """Whether two readings are certainly different numbers, or hold such ones in the same places.

    False for anything that is not built of numbers: then somebody else has to say.
    """
    left, right = _parts(wanted), _parts(given)
    if left is not None and right is not None and len(left) == len(right):
        if getattr(wanted, "is_FiniteSet", False) or getattr(given, "is_FiniteSet", False):
            return any(all(differ(one, other) for other in right) for one in left)
        return any(map(differ, left, right))
    if are_numbers(wanted, given):
        return not same_number(wanted, given)
    return _constant_apart(wanted, given)


def _constant_apart(wanted: Any, given: Any) -> bool:
    """Whether two exact expressions in variables differ by a number, however small."""
    from sympy import Expr, Float

    if not (isinstance(wanted, Expr) and isinstance(given, Expr)) or wanted.has(Float) or given.has(Float):
        return False
    apart = (_evaluated(wanted) - _evaluated(given)).expand()
    return bool(apart.is_Rational and apart != 0)


def are_numbers(*values: Any) -> bool:
    """Whether each is one finite number, complex ones too."""
    from sympy import Expr

    return all(isinstance(value, Expr) and value.is_number and value.is_finite is not False for value in values)


def same_number(a: Any, b: Any) -> bool:
    """Of two sympy numbers."""
    from sympy import Float

    a, b = _evaluated(a), _evaluated(b)
    if a.has(Float) or b.has(Float):
        tolerance = NOISE if _terminates(a) and _terminates(b) else TOLERANCE
        return bool(abs(_decimal(a) - _decimal(b)) <= tolerance * abs(_decimal(a)))
    if a.is_Rational and b.is_Rational:
        return bool(a == b)
    size = abs(_decimal(a))
    return bool(abs((a - b).evalf(_DIGITS, chop=False)) <= size * 10 ** -(_DIGITS // 2))


def _terminates(value: Any) -> bool:
    """Whether a decimal can write it: a decimal itself, or a fraction whose denominator has no factor but 2 and 5."""
    if not value.is_Rational:
        return bool(value.is_Float)
    rest = int(value.q)
    for factor in (2, 5):
        while rest % factor == 0:
            rest //= factor
    return rest == 1


def _decimal(value: Any) -> Any:
    return value.evalf(_DIGITS)


def _evaluated(value: Any) -> Any:
    return value.doit() if hasattr(value, "doit") else value


def _parts(value: Any) -> Sequence[Any] | None:
    """What stands in the places of a tuple, a set, a matrix or an interval; None for anything else."""
    from sympy import FiniteSet, Interval, MatrixBase, Tuple

    if isinstance(value, MatrixBase):
        return list(value)
    if isinstance(value, Interval):
        return [value.start, value.end]
    return list(value.args) if isinstance(value, Tuple | FiniteSet) else None

"""A server that is busy says for how long: `Retry-After` of a 429 or 503 (RFC 9110, 10.2.3). Pure."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

BUSY = (429, 503)
_SECONDS = re.compile(r"[0-9]{1,9}")
_LEAST_S = 0.1  # `0`, or a date that has passed: come again, but not in a circle


def retry_after_s(status: int, value: str, date: str = "") -> float | None:
    """Seconds from the answer on; None where the server is not busy, or does not say for how long.

    A date counts from the answer's own `Date`, where it has one: the clocks of two hosts need not agree.
    """
    value = value.strip()
    if status not in BUSY or not value:
        return None
    if _SECONDS.fullmatch(value):
        return max(_LEAST_S, float(value))
    until, now = _moment(value), _moment(date) or datetime.now(UTC)
    return None if until is None else max(_LEAST_S, math.ceil((until - now) / timedelta(seconds=1)))


def _moment(value: str) -> datetime | None:
    """An HTTP date in any of its three forms; None for anything else."""
    try:
        found = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)

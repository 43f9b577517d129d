"""What a person may have meant by a name that does not exist. Knows no meaning of any name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 60  # a longer list helps nobody


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean …?`, else what there is: the second half of a sentence that began with the wrong name."""
    names = list(dict.fromkeys(known))
    found = alike(name, names)
    if found:
        return f"did you mean {found}?"
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"there are {', '.join(names[:_MOST])}{more}" if names else "there is none"


def alike(name: str, known: Iterable[str]) -> str:
    """The one name that begins like it, or the one that is written most like it; empty where there is none."""
    names = list(known)
    longer = [other for other in names if name and other.startswith(name)]
    close = longer if len(longer) == 1 else get_close_matches(name, names, n=1, cutoff=0.6)
    return close[0] if close else ""

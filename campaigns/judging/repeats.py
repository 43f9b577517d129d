"""Whether a server is faster on what it has answered before: then repeats speak for nothing but repeats.

A *trend* is ln(repeated / first) of the time per decoded token in one server life: the median of the later measured
requests of one arm over the first request of that prompt and seed that the server ever met. It met warm-ups before,
of the same prompt and other seeds, so that a cold start is in neither (`campaigns.seeds`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from campaigns.judging.statistics import percent, t_interval
from campaigns.judging.verdicts import counted

# One request stands against many in each startup, unpaired: two-sided, of which only the faster half decides.
LEVEL = 0.99

Repeats = Mapping[str, Mapping[int, float]]  # by server (control, candidate, or the one of both), then by startup


def remembering(repeats: Repeats, bar: float) -> tuple[str, ...]:
    """A sentence for each server whose repeats are faster beyond `bar` and beyond chance; needs three startups."""
    return tuple(
        _sentence(server, values)
        for server, values in _values(repeats)
        if (interval := t_interval(values, LEVEL)) is not None and interval.high < 0 and np.median(values) < -bar
    )


def suspected(repeats: Repeats, bar: float) -> tuple[str, ...]:
    """The same where every startup says so, and chance is not excluded."""
    return tuple(_sentence(server, values) for server, values in _values(repeats) if max(values) < -bar)


def _values(repeats: Repeats) -> list[tuple[str, list[float]]]:
    return [(server, list(found.values())) for server, found in repeats.items() if found]


def _sentence(server: str, values: Sequence[float]) -> str:
    size = -percent(float(np.median(values)))
    return (
        f"{server}: a prompt and seed that it has answered before is decoded in {size:.2f} % less time "
        f"({counted(len(values), 'startup')}); campaign.seeds=fresh asks for each once"
    )


def mean_repeats(fixtures: Sequence[Repeats]) -> dict[str, dict[int, float]]:
    """Over fixtures, in the startups that all of them have."""
    servers = list(dict.fromkeys(server for each in fixtures for server in each))
    return {server: _mean([each.get(server, {}) for each in fixtures]) for server in servers}


def _mean(found: Sequence[Mapping[int, float]]) -> dict[int, float]:
    shared = sorted(set.intersection(*(set(each) for each in found)))
    return {startup: math.fsum(each[startup] for each in found) / len(found) for startup in shared}

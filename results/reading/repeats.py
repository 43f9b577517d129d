"""First and repeated decode times of the same prompt and seed inside one server life (`campaigns.judging.repeats`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from campaigns.judging.repeats import Repeats
from campaigns.plan import StartupMode
from results.reading.levels import Source

BOTH = "the server of both arms"


def repeat_trends(requests: pd.DataFrame, counted: pd.Series, plan: Mapping[str, Any], source: Source) -> Repeats:
    """ln(repeated / first) of the time per decoded token, by server and startup.

    `requests` are all of the campaign's, `counted` the ids of those in one group's admissible pairs. Empty where seeds
    decide nothing (temperature 0), where they were not kept (older stores), and where none comes again.
    """
    if not plan["sampling"]["temperature"]:
        return {}
    shared = plan["startup_mode"] == StartupMode.SWITCH.value
    known = requests[requests.sent_seed.notna()].assign(per_token=_per_token(requests, source))
    found: dict[str, dict[int, float]] = {}
    for (startup, _, _), of_life in known.groupby(["startup", "startup_attempt", "fixture"]):
        for server, met in [(BOTH, of_life)] if shared else of_life.groupby("role"):
            if (trend := _trend(met.sort_values("position"), counted)) is not None:
                found.setdefault(str(server), {}).setdefault(int(str(startup)), trend)
    return found


def _per_token(requests: pd.DataFrame, source: Source) -> pd.Series:
    """Where a first chunk does not say how much it holds, over all tokens: equal answers divide equally."""
    name = "engine" if source.engine_averages else "client"
    decoded = requests[f"decoded_{name}"].fillna(requests.completion_tokens)
    return requests[f"decode_ns_{name}"] / decoded.where(decoded > 0)


def _trend(met: pd.DataFrame, counted: pd.Series) -> float | None:
    """Of one prompt in one server; `met` are its requests in the order of running."""
    measured = met[met.request_id.isin(counted)]
    if measured.empty:
        return None
    first = measured.iloc[0]
    before = met[met.position < first.position]
    warm = (before.phase == "warmup") & (before.role == first.role)
    if not warm.any() or (before.sent_seed == first.sent_seed).any():
        return None  # a cold start, or a repeat
    again = measured[(measured.sent_seed == first.sent_seed) & (measured.role == first.role)].per_token.iloc[1:]
    repeated = again.dropna().median()
    return math.log(repeated / first.per_token) if repeated > 0 and first.per_token > 0 else None

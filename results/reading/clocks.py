"""Whether an engine's own clock and the client's tell the same of the same requests. Both see the same rounds.

An engine's clock is exact and the engine's own word: one that counts in another unit, or leaves out a part of what an
arm does, makes figures that nobody saw.
"""

from __future__ import annotations

import pandas as pd

from campaigns.judging.statistics import percent, t_interval
from campaigns.judging.verdicts import MARGIN
from results.reading.levels import Source

_MOST_RATIO = 1.25  # of the times per decoded token; 0.99 to 1.01 on a host with three times more work than CPUs
_LEVEL = 0.99


def disagreement(pairs: pd.DataFrame, source: Source) -> str:
    """One sentence, or nothing; of campaigns that are told by the engine's clock."""
    if not source.engine_averages:
        return ""
    counted = pairs[pairs.admissible & pairs.effect_engine.notna() & pairs.effect_client.notna()]
    return _levels(counted) or _effects(counted)


def _levels(counted: pd.DataFrame) -> str:
    for role in ("control", "candidate"):
        per_token = (counted[f"{role}_decode_ns_{by}"] / counted[f"{role}_decoded_{by}"] for by in ("engine", "client"))
        engine_ns, client_ns = (float(times.median()) for times in per_token)
        if max(engine_ns, client_ns) > _MOST_RATIO * min(engine_ns, client_ns):
            return (
                f"the engine tells {engine_ns * 1e-6:.4g} ms for a token of the {role} where the client saw "
                f"{client_ns * 1e-6:.4g} ms: all figures rest on the engine's clock"
            )
    return ""


def _effects(counted: pd.DataFrame) -> str:
    """Startups speak, as everywhere; less than the margin of equivalence is nobody's concern."""
    apart = (counted.effect_engine - counted.effect_client).groupby(counted.startup).median()
    found = t_interval(apart.tolist(), _LEVEL)
    if found is None or not found.excludes_zero() or abs(apart.median()) <= MARGIN:
        return ""
    engine, client = (counted[f"effect_{by}"].groupby(counted.startup).median().median() for by in ("engine", "client"))
    return (
        f"the engine's clock tells an effect of {percent(engine):+.2f} %, the client saw {percent(client):+.2f} % in "
        "the same requests: one arm does something outside the time that the engine counts"
    )

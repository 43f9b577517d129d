"""Which pairs belong to which group, and which are excluded by what was decided beside the measurement.

Exclusions (throttling, a foreign process, the operator's word) are applied to both arms of a pair. Nothing is dropped
by value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from campaigns.reasons import Reason
from campaigns.records import Failure
from results.reading.levels import Source

EXCLUDING = frozenset(
    {
        Reason.THROTTLE,
        Reason.FOREIGN_PROCESS,
        Reason.CLOCK_STEP,
        Reason.IDENTITY_FAIL,
        Reason.OPERATOR,
        Reason.STARTUP_COALESCED,
    }
)  # a failure of such a kind that names a pair or a startup excludes it, both arms


def grouped(pairs: pd.DataFrame, plan: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Pairs by fixture and seed in the order of the plan, or by dataset where the campaign runs a corpus."""
    if plan["corpus"]:
        dataset = {fixture["id"]: fixture["dataset"] for fixture in plan["fixtures"]}
        names = pairs.fixture.map(dataset)
        return {name: pairs[names == name] for name in dict.fromkeys(dataset.values())}
    return {
        group_id(fixture, seed): pairs[(pairs.fixture == fixture["id"]) & (pairs.seed == seed)]
        for fixture in plan["fixtures"]
        for seed in fixture["seeds"]
    }


def group_names(plan: Mapping[str, Any]) -> dict[tuple[str, int | None], str]:
    """The group of each fixture and seed, in the order of `grouped`; of a corpus every seed has its dataset's."""
    if plan["corpus"]:
        return {(fixture["id"], None): fixture["dataset"] for fixture in plan["fixtures"]}
    return {(fixture["id"], seed): group_id(fixture, seed) for fixture in plan["fixtures"] for seed in fixture["seeds"]}


def group_id(fixture: Mapping[str, Any], seed: int) -> str:
    return str(fixture["id"]) if len(fixture["seeds"]) == 1 else f"{fixture['id']} seed {seed}"


def context_length(fixture: str) -> int:
    """131072 of `context-131072`; 0 where the name holds no length."""
    found = re.fullmatch(r"(?:context|ctx|len)[-_]?(\d+)", fixture)
    return int(found.group(1)) if found else 0


def excluded(pairs: pd.DataFrame, failures: Sequence[Failure]) -> pd.DataFrame:
    """Pairs with the exclusions that were decided about them beside the measurement; always both arms."""
    for failure in (f for f in failures if f.reason in EXCLUDING):
        pairs = _struck(pairs, _named(pairs, failure), failure.reason)
    return pairs


def exact(pairs: pd.DataFrame) -> pd.Series:
    """Pairs whose answers agree as far as was required of them when they were compared: one word, one count."""
    return ~pairs.reasons.str.contains(Reason.BELOW_REQUIRED_EXACTNESS.value, regex=False).astype(bool)


def timed(pairs: pd.DataFrame, source: Source) -> pd.DataFrame:
    """A pair that gives no effect (no round, a time of zero or less) is not admissible: there is one count of pairs."""
    hit = pairs.admissible & ~np.isfinite(pairs[source.effect_column].astype(float))
    return _struck(pairs, hit, Reason.NO_TIME)


def _struck(pairs: pd.DataFrame, hit: pd.Series, reason: Reason) -> pd.DataFrame:
    pairs.loc[hit, "admissible"] = False
    pairs.loc[hit, "reasons"] = [json.dumps([*json.loads(text), reason.value]) for text in pairs.loc[hit, "reasons"]]
    return pairs


def _named(pairs: pd.DataFrame, failure: Failure) -> pd.Series:
    key = failure.key
    if key is not None:
        return (
            (pairs.startup == key.startup)
            & (pairs.fixture == key.fixture)
            & (pairs.seed == key.seed)
            & (pairs["repeat"] == key.repeat)
        )
    of_startup = pairs.startup == (-1 if failure.startup is None else failure.startup)
    return of_startup & (pairs.control_startup_attempt == failure.startup_attempt)

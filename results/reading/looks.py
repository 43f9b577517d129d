"""When a campaign is judged, and by what: the plan's word on looks, margin and seed, for a report as for a history.

Plans are plain data here; one that was stored before campaigns could stop when they are decided is judged once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from campaigns.judging.looks import Looks
from campaigns.judging.past import Past
from campaigns.judging.verdicts import MARGIN, Setting
from campaigns.plan import Stop
from campaigns.records import Look


def looks_of(plan: Mapping[str, Any]) -> Looks | None:
    """None where only the end is looked at."""
    decided = plan.get("stop", Stop.PLANNED.value) == Stop.DECIDED.value
    return Looks(int(plan["min_startups"]), int(plan["startups"])) if decided else None


def setting_of(plan: Mapping[str, Any], past: Past, overloaded: str, **more: Any) -> Setting:
    """`past` of the mean over the fixtures, `overloaded` why the host cannot support a verdict."""
    margin = float(plan.get("margin", MARGIN))
    return Setting(int(plan["seed"]), past, margin, overloaded=overloaded, looks=looks_of(plan), **more)


def pairs_a_startup(plan: Mapping[str, Any]) -> int:
    return sum(len(fixture["seeds"]) for fixture in plan["fixtures"]) * (1 if plan["corpus"] else int(plan["pairs"]))


def n_planned(plan: Mapping[str, Any]) -> int:
    """Pairs of a campaign that runs all its startups."""
    return int(plan["startups"]) * pairs_a_startup(plan)


def n_seen(pairs: pd.DataFrame, plan: Mapping[str, Any], looks: Iterable[Look]) -> int:
    """How many startups a look sees: from the first on those that are complete, none behind a look that decided.

    So a look is the same whenever it is taken: while others run beside it, and after they were killed.
    """
    counts = pairs.groupby("startup").size()
    whole = set(counts.index[counts >= pairs_a_startup(plan)])
    first_open = next(startup for startup in range(len(whole) + 1) if startup not in whole)
    return min([first_open, *(look.n_seen for look in looks if look.decided)])


def judgeable(pairs: pd.DataFrame, plan: Mapping[str, Any], looks: Iterable[Look]) -> pd.DataFrame:
    """All pairs; of a campaign that stops when it is decided those that its look sees."""
    return pairs if looks_of(plan) is None else pairs[pairs.startup < n_seen(pairs, plan, looks)]

"""Effects of many campaigns at once: pairs as they were recorded, by campaign and group, without their requests.

A report recomputes an effect from its requests where they do not share one clock; across campaigns the recorded one is
what there is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import bindparam, text

from campaigns.judging.statistics import PairEffect, by_startup, startup_medians
from campaigns.plan import Role
from results.reading.exclusions import EXCLUDING, excluded, grouped
from results.reading.levels import Source
from results.store.reader import Reader

_PAIRS = text("""
SELECT p.campaign_id, p.startup, p.fixture, p.seed, p.repeat, p.block_attempt, p.delta_log, p.admissible,
    p.reasons, p.exactness, r.order_in_pair = 0 AS control_first, r.position,
    r.startup_attempt AS control_startup_attempt,
    coalesce(r.engine_decode_ns, r.last_content_ns - r.first_content_ns) * 1.0 / nullif(r.n_rounds, 0) AS control_ns
FROM pair p
JOIN request r ON r.campaign_id = p.campaign_id AND r.startup = p.startup AND r.fixture = p.fixture AND r.seed = p.seed
    AND r.repeat = p.repeat AND r.block_attempt = p.block_attempt AND r.role = 'control' AND r.phase = 'measure'
WHERE p.campaign_id IN :campaigns AND p.block_attempt = (
    SELECT max(b.attempt) FROM block b WHERE b.campaign_id = p.campaign_id AND b.startup = p.startup
        AND b.fixture = p.fixture AND b.seed = p.seed)
ORDER BY p.campaign_id, p.startup, r.position
""").bindparams(bindparam("campaigns", expanding=True))

_ENERGIES = text("""
SELECT campaign_id, startup, fixture, seed, repeat, block_attempt, role, energy_mj, completion_tokens
FROM request WHERE phase = 'measure' AND energy_mj IS NOT NULL AND campaign_id IN :campaigns
""").bindparams(bindparam("campaigns", expanding=True))
_KEY = ["campaign_id", "startup", "fixture", "seed", "repeat", "block_attempt"]


@dataclass(frozen=True)
class Effects:
    """The pairs of one campaign and group."""

    pairs: list[PairEffect]
    n_recorded: int
    levels: dict[int, float]  # ln of the control's median request average in ns, by startup
    energy_per_token_j: dict[Role, float]  # of the arms whose every request told it

    @property
    def medians(self) -> dict[int, float]:
        return startup_medians(by_startup(self.pairs))


def effects(reader: Reader, plans: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Effects]]:
    """By campaign, of which `plans` has the plan, and by group."""
    frame = pd.read_sql(_PAIRS, reader.connection, params={"campaigns": list(plans)})
    frame["admissible"] = frame.admissible.astype(bool)
    _set_aside(reader, frame)
    frame = _with_energy(reader, frame, list(plans))
    by_campaign = {str(name): rows.copy() for name, rows in frame.groupby("campaign_id", sort=False)}
    found: dict[str, dict[str, Effects]] = {name: {} for name in plans}
    for name, rows in by_campaign.items():
        with reader.damaged.sparing(name):
            failures = [failure for failure in reader.failures(name) if failure.reason in EXCLUDING]
            groups = grouped(excluded(rows, failures), plans[name])
            found[name] = {group: _effects(pairs) for group, pairs in groups.items()}
    return {name: groups if name not in reader.damaged else {} for name, groups in found.items()}


def _set_aside(reader: Reader, frame: pd.DataFrame) -> None:
    """Figures that are none would spoil the column for every campaign."""
    for name in ("delta_log", "control_ns"):
        numbers = pd.to_numeric(frame[name], errors="coerce").replace([math.inf, -math.inf], math.nan)
        for campaign_id in frame.campaign_id[numbers.isna() & frame[name].notna()].unique():
            reader.damaged.add(str(campaign_id), f"a pair's {name} is no number")
        frame[name] = numbers


def _with_energy(reader: Reader, frame: pd.DataFrame, campaigns: list[str]) -> pd.DataFrame:
    """The pairs with `energy_mj_ROLE` and `tokens_ROLE`, NaN where unknown."""
    told = pd.read_sql(_ENERGIES, reader.connection, params={"campaigns": campaigns})
    told = told.rename(columns={"completion_tokens": "tokens"})
    for name in ("energy_mj", "tokens"):
        told[name] = pd.to_numeric(told[name], errors="coerce").replace([math.inf, -math.inf], math.nan)
    if told.empty:  # its columns have no types, and would not meet the others
        names = [f"{name}_{role.value}" for role in Role for name in ("energy_mj", "tokens")]
        return frame.assign(**dict.fromkeys(names, math.nan))
    for role in Role:
        of_role = told.loc[told.role == role.value, [*_KEY, "energy_mj", "tokens"]]
        renamed = of_role.rename(columns={name: f"{name}_{role.value}" for name in ("energy_mj", "tokens")})
        frame = frame.merge(renamed, on=_KEY, how="left")
    return frame


def _energies(counted: pd.DataFrame) -> dict[Role, float]:
    found = {}
    for role in Role:
        energy_mj, tokens = (counted[f"{name}_{role.value}"] for name in ("energy_mj", "tokens"))
        if len(counted) and energy_mj.notna().all() and tokens.notna().all() and tokens.sum():
            found[role] = float(energy_mj.sum() / tokens.sum()) * 1e-3
    return found


def _effects(rows: pd.DataFrame) -> Effects:
    timed = rows[rows.admissible & rows.delta_log.notna()]
    columns = zip(timed.startup, timed.delta_log, timed.control_first, strict=True)
    levels = np.log(timed[timed.control_ns > 0].groupby("startup").control_ns.median())
    return Effects(
        [PairEffect(int(startup), float(delta), bool(first)) for startup, delta, first in columns],
        len(rows),
        {int(str(startup)): float(level) for startup, level in levels.items()},
        _energies(timed),
    )


def mean_startups(found: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Mean over groups, in the startups that all of them have."""
    shared = sorted(set.intersection(*(set(each) for each in found))) if found else []
    return {s: math.fsum(each[s] for each in found) / len(found) for s in shared}


def pair_effects(admissible: pd.DataFrame, source: Source) -> list[PairEffect]:
    """The effects of pairs that have a time in both arms, in the order of running (`judging.compare.effect`)."""
    turn = admissible[["control_position", "candidate_position"]].min(axis=1)
    timed = admissible.assign(turn=turn).dropna(subset=source.effect_column)
    timed = timed.sort_values(["startup", "turn"], kind="stable")
    columns = zip(timed.startup, timed[source.effect_column], timed.control_first, strict=True)
    return [PairEffect(int(startup), float(delta), bool(first)) for startup, delta, first in columns]

"""Effects of many campaigns at once: pairs as they were recorded, by campaign and group, without their requests.

A report recomputes an effect from its requests where they do not share one clock; across campaigns the recorded one is
what there is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import pandas as pd
from sqlalchemy import bindparam, text

from campaigns.judging.statistics import PairEffect, by_startup, settle_drift, startup_medians
from campaigns.plan import Role
from results.reading.exclusions import EXCLUDING, excluded, group_names
from results.reading.levels import Source
from results.reading.looks import judgeable, looks_of
from results.store.reader import Reader
from results.store.unchanged import set_changed_aside

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
_PAIR = ("startup", "fixture", "seed", "repeat", "block_attempt")
_ROW = ("admissible", "delta_log", "control_first", "control_ns")
_KEY = ["campaign_id", *_PAIR]
_JOULES = tuple((role, f"energy_mj_{role.value}", f"tokens_{role.value}") for role in Role)
_STATES = text("""
SELECT c.campaign_id, (SELECT max(id) FROM pair p WHERE p.campaign_id = c.campaign_id),
    (SELECT max(id) FROM block b WHERE b.campaign_id = c.campaign_id),
    (SELECT max(id) FROM failure f WHERE f.campaign_id = c.campaign_id),
    (SELECT max(id) FROM look l WHERE l.campaign_id = c.campaign_id) FROM campaign c
""")

PairOf = tuple[int, str, int, int, int]  # _PAIR


@dataclass(frozen=True)
class Effects:
    """The pairs of one campaign and group."""

    pairs: list[PairEffect]
    n_recorded: int
    levels: dict[int, float]  # ln of the control's median request average in ns, by startup
    settle: dict[int, float]  # ln drift of the control inside each startup
    energy_per_token_j: dict[Role, float]  # of the arms whose every request told it
    keys: frozenset[PairOf]  # of the pairs

    @cached_property
    def medians(self) -> dict[int, float]:
        """Computed once: every later campaign of the same host asks for them."""
        return startup_medians(by_startup(self.pairs))


class Memory:
    """What was computed of campaigns that have grown by no row since, for a process that is asked many times.

    Rows are inserted once and never changed, so the newest ids of a campaign say whether it did.
    """

    def __init__(self) -> None:
        self._states: dict[str, tuple[Any, ...]] = {}
        self._groups: dict[str, dict[str, Effects]] = {}

    def changed(self, reader: Reader, names: Collection[str]) -> list[str]:
        """Those of the named campaigns that must be read again; from now on they are known as they stand."""
        file = reader.path.stat()
        found = {row[0]: (file.st_dev, file.st_ino, *row[1:]) for row in reader.connection.execute(_STATES)}
        old = [name for name in names if name not in self._groups or self._states.get(name) != found.get(name)]
        self._states |= {name: found[name] for name in names if name in found}  # the others were not read
        return old

    def keep(self, groups: Mapping[str, dict[str, Effects]]) -> None:
        self._groups |= groups

    def of(self, names: Iterable[str]) -> dict[str, dict[str, Effects]]:
        return {name: self._groups[name] for name in names}


def effects(
    reader: Reader, plans: Mapping[str, Mapping[str, Any]], memory: Memory | None = None
) -> dict[str, dict[str, Effects]]:
    """By campaign, of which `plans` has the plan, and by group."""
    memory = memory or Memory()
    names = memory.changed(reader, plans)
    memory.keep(_read(reader, {name: plans[name] for name in names}) if names else {})
    return {name: {} if name in reader.damaged else groups for name, groups in memory.of(plans).items()}


def _read(reader: Reader, plans: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Effects]]:
    set_changed_aside(reader, plans)
    whole = [name for name in plans if name not in reader.damaged]
    frame = pd.read_sql(_PAIRS, reader.connection, params={"campaigns": whole})
    frame["admissible"] = frame.admissible.astype(bool)
    _set_aside(reader, frame)
    frame = _with_energy(reader, frame, whole)
    found: dict[str, dict[str, Effects]] = {name: {} for name in plans}
    for name, rows in frame.groupby("campaign_id", sort=False):
        with reader.damaged.sparing(str(name)):
            failures = [failure for failure in reader.failures(str(name)) if failure.reason in EXCLUDING]
            kept, plan = excluded(rows.copy(), failures) if failures else rows, plans[str(name)]
            seen = judgeable(kept, plan, reader.looks(str(name))) if looks_of(plan) else kept
            found[str(name)] = _groups(seen, plan)
    return found


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


def _energies(rows: pd.DataFrame) -> list[dict[Role, tuple[float, float]]]:
    """mJ and tokens of both requests of every row, NaN where unknown."""
    columns = [(role, rows[energy].tolist(), rows[tokens].tolist()) for role, energy, tokens in _JOULES]
    return [{role: (energy[i], tokens[i]) for role, energy, tokens in columns} for i in range(len(rows))]


def _per_token_j(counted: Sequence[Mapping[Role, tuple[float, float]]]) -> dict[Role, float]:
    """Of the arms whose every request told it."""
    sums = {role: [math.fsum(column) for column in zip(*(row[role] for row in counted), strict=True)] for role in Role}
    return {
        role: both[0] / both[1] * 1e-3 for role, both in sums.items() if both and both[0] == both[0] and both[1] > 0
    }


def _groups(rows: pd.DataFrame, plan: Mapping[str, Any]) -> dict[str, Effects]:
    """As `grouped` groups them; row by row, since a table of a table costs more than the few pairs of a group."""
    names = group_names(plan)
    pairs: dict[str, list[PairEffect]] = {name: [] for name in names.values()}
    levels: dict[str, dict[int, list[float]]] = {name: {} for name in pairs}
    energies: dict[str, list[dict[Role, tuple[float, float]]]] = {name: [] for name in pairs}
    keys: dict[str, list[PairOf]] = {name: [] for name in pairs}
    recorded = dict.fromkeys(pairs, 0)
    found = zip(*(rows[name].tolist() for name in _PAIR), strict=True)
    columns = (rows[name].tolist() for name in _ROW)
    for key, admissible, delta, control_first, control_ns, energy in zip(found, *columns, _energies(rows), strict=True):
        startup, fixture, seed = key[:3]
        name = names.get((fixture, None if plan["corpus"] else seed))
        if name is None:
            continue
        recorded[name] += 1
        if admissible and not math.isnan(delta):
            pairs[name].append(PairEffect(int(startup), float(delta), bool(control_first)))
            energies[name].append(energy)
            keys[name].append(key)
            if control_ns > 0:
                levels[name].setdefault(int(startup), []).append(control_ns)
    return {
        name: Effects(
            pairs[name],
            recorded[name],
            {startup: math.log(statistics.median(values)) for startup, values in sorted(levels[name].items())},
            {s: drift for s, values in levels[name].items() if (drift := settle_drift(values)) is not None},
            _per_token_j(energies[name]),
            frozenset(keys[name]),
        )
        for name in pairs
    }


def mean_startups(found: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Mean over groups, in the startups that all of them have."""
    shared = sorted(set.intersection(*(set(each) for each in found))) if found else []
    return {s: math.fsum(each[s] for each in found) / len(found) for s in shared}


def pair_effects(admissible: pd.DataFrame, source: Source) -> list[PairEffect]:
    """The effects of pairs that have a time in both arms, in the order of running (`exactness.compare.effect`)."""
    names = ("startup", "control_position", "candidate_position", source.effect_column, "control_first")
    rows = zip(*(admissible[name].tolist() for name in names), strict=True)
    timed = [(startup, min(one, other), delta, first) for startup, one, other, delta, first in rows if delta == delta]
    return [PairEffect(int(s), float(delta), bool(first)) for s, _, delta, first in sorted(timed, key=itemgetter(0, 1))]

"""The groups of a campaign's pairs: one per fixture and seed, or one per dataset of a corpus, each with its judgement.

Exclusions decided beside the measurement (throttling, a foreign process, the operator's word) are applied here, to
both arms of a pair. Nothing is dropped by value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from campaigns.judging.statistics import PairEffect, outliers, settle_drift
from campaigns.judging.verdicts import Context, Judgement, judge
from campaigns.plan import Role
from campaigns.records import Exactness, Failure, Reason
from results.reading import frames
from results.reading.floors import pair_effects
from results.reading.levels import ArmLevels, Source, arm_levels, source_of
from results.store.reader import Reader

EXCLUDING = frozenset(
    {Reason.THROTTLE, Reason.FOREIGN_PROCESS, Reason.CLOCK_STEP, Reason.IDENTITY_FAIL, Reason.OPERATOR}
)  # a failure of such a kind that names a pair or a startup excludes it, both arms


@dataclass(frozen=True)
class Group:
    """One fixture and seed, or one dataset of a corpus: what a column or a row of a table is about."""

    id: str
    fixture: str  # id of the fixture, or name of the dataset
    seed: int | None
    n_pairs: int
    n_exact_pairs: int
    n_admissible_pairs: int
    judgement: Judgement
    control: ArmLevels
    candidate: ArmLevels
    settle_drift: Mapping[int, float]  # of the control, by startup
    divergences: tuple[str, ...]  # first divergence of every pair whose ids differ
    n_outliers: int  # pairs whose effect is far from the others'; kept
    n_unequal_rounds: int  # admissible pairs whose arms took different numbers of rounds
    p_holm: float | None = None

    @property
    def level_ratio(self) -> float | None:
        if self.control.level_ms is None or self.candidate.level_ms is None:
            return None
        return self.candidate.level_ms / self.control.level_ms

    @property
    def control_drift(self) -> float | None:
        """ln of the control's highest over its lowest startup level: the arm that nobody changed."""
        levels = self.control.startup_levels_ms.values()
        return math.log(max(levels) / min(levels)) if len(levels) > 1 else None

    @property
    def delta_ms(self) -> float | None:
        if self.control.level_ms is None or self.candidate.level_ms is None:
            return None
        return self.candidate.level_ms - self.control.level_ms

    def arm(self, role: Role) -> ArmLevels:
        return self.control if role is Role.CONTROL else self.candidate


@dataclass(frozen=True)
class Setting:
    """What all groups of one campaign share."""

    plan: Mapping[str, Any]
    source: Source
    required: Exactness
    resolution_ms: float | None

    @property
    def corpus(self) -> bool:
        return bool(self.plan["corpus"])

    def resolution(self, control: ArmLevels) -> float | None:
        """Relative to the control's level."""
        if self.resolution_ms is None or not control.level_ms:
            return None
        return self.resolution_ms / control.level_ms


def build(name: str, rows: pd.DataFrame, requests: pd.DataFrame, floor: Sequence[float], setting: Setting) -> Group:
    """`rows` are all its pairs, `requests` all of the campaign's, `floor` the A/A startup medians of its name."""
    source, whole = setting.source, setting.corpus or rows.empty
    admissible = rows[rows.admissible]
    control, candidate = (_side(requests, rows, role, setting) for role in (Role.CONTROL, Role.CANDIDATE))
    effects = pair_effects(admissible, source)
    context = Context(int(setting.plan["seed"]), setting.resolution(control), tuple(floor))
    return Group(
        id=name,
        fixture=name if whole else str(rows.fixture.iloc[0]),
        seed=None if whole else int(rows.seed.iloc[0]),
        n_pairs=len(rows),
        n_exact_pairs=int((rows.exactness >= setting.required).sum()),
        n_admissible_pairs=len(admissible),
        judgement=judge(effects, len(rows), context),
        control=control,
        candidate=candidate,
        settle_drift=_settle(admissible, source),
        divergences=tuple(_divergence(row) for row in rows[rows.divergence_index.notna()].itertuples()),
        n_outliers=len(outliers([effect.delta_log for effect in effects])),
        n_unequal_rounds=int(unequal_rounds(admissible).sum()),
    )


def unequal_rounds(pairs: pd.DataFrame) -> pd.Series:
    """Where both arms counted their rounds, to different numbers: no round of one is then like one of the other."""
    control, candidate = pairs.control_n_rounds, pairs.candidate_n_rounds
    return control.notna() & candidate.notna() & (control != candidate)


def _side(requests: pd.DataFrame, rows: pd.DataFrame, role: Role, setting: Setting) -> ArmLevels:
    counted = requests[requests.request_id.isin(rows.loc[rows.admissible, f"{role}_request_id"])]
    of_arm = (requests.phase == "warmup") & (requests.role == role.value)
    warmups = requests[of_arm & requests.fixture.isin(rows.fixture.unique())]
    return arm_levels(counted, warmups, setting.source, summed=setting.corpus)


def _settle(admissible: pd.DataFrame, source: Source) -> dict[int, float]:
    drifts: dict[int, float] = {}
    for startup, rows in admissible.sort_values("control_position").groupby("startup"):
        drift = settle_drift(rows[f"control_{source.level_column}"].dropna().tolist())
        if drift is not None:
            drifts[int(str(startup))] = drift
    return drifts


def _divergence(row: Any) -> str:
    control, candidate = json.loads(row.divergence_ids)
    where = f"startup {row.startup + 1}, {row.fixture}, seed {row.seed}, repeat {row.repeat}"
    return f"{where}: token {int(row.divergence_index)}, control {control}, candidate {candidate}"


def group_effects(reader: Reader, campaign_id: str) -> dict[str, list[PairEffect]]:
    """The effects of a campaign's admissible pairs, by group: the short way for floors and histories."""
    requests = frames.requests(reader, campaign_id)
    pairs = excluded(frames.pairs(reader, campaign_id, requests), reader.failures(campaign_id))
    source = source_of(frames.measured(requests))
    groups = grouped(pairs, json.loads(reader.campaign(campaign_id).plan_json))
    return {name: pair_effects(rows[rows.admissible], source) for name, rows in groups.items()}


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


def group_id(fixture: Mapping[str, Any], seed: int) -> str:
    return str(fixture["id"]) if len(fixture["seeds"]) == 1 else f"{fixture['id']} seed {seed}"


def context_length(fixture: str) -> int:
    """131072 of `context-131072`; 0 where the name holds no length."""
    found = re.fullmatch(r"(?:context|ctx|len)[-_]?(\d+)", fixture)
    return int(found.group(1)) if found else 0


def excluded(pairs: pd.DataFrame, failures: Sequence[Failure]) -> pd.DataFrame:
    """Pairs with the exclusions that were decided about them beside the measurement; always both arms."""
    for failure in (f for f in failures if f.reason in EXCLUDING):
        hit = _named(pairs, failure)
        pairs.loc[hit, "admissible"] = False
        pairs.loc[hit, "reasons"] = [
            json.dumps([*json.loads(text), failure.reason.value]) for text in pairs.loc[hit, "reasons"]
        ]
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

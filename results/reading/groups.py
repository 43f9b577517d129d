"""The groups of a campaign's pairs: one per fixture and seed, or one per dataset of a corpus, each judged."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pandas as pd

from campaigns.judging.past import Past
from campaigns.judging.repeats import Repeats
from campaigns.judging.statistics import PairEffect, outliers, settle_drift
from campaigns.judging.verdicts import Judgement, Sample
from campaigns.plan import Role
from results.reading import frames
from results.reading.effects import pair_effects
from results.reading.exclusions import exact, excluded, grouped
from results.reading.levels import ArmLevels, Rows, Source, arm_levels, source_of
from results.reading.repeats import repeat_trends
from results.store.reader import Reader

_PROMPT = ["fixture", "seed", "control_sent_seed"]
_PARTED = ["startup", "fixture", "seed", "repeat", "divergence_index", "divergence_ids"]


@dataclass(frozen=True)
class Group:
    """One fixture and seed, or one dataset of a corpus: what a column or a row of a table is about."""

    id: str
    fixture: str  # id of the fixture, or name of the dataset
    seed: int | None
    n_pairs: int
    n_prompts: int  # different prompts and seeds among the exact ones; the others are repeats
    n_exact_pairs: int
    n_admissible_pairs: int
    judgement: Judgement
    control: ArmLevels
    candidate: ArmLevels
    settle_drift: Mapping[int, float]  # of the control, by startup
    candidate_settle_drift: Mapping[int, float]
    divergences: tuple[str, ...]  # first divergence of every pair whose ids differ
    n_outliers: int  # pairs whose effect is far from the others'; kept
    n_unequal_rounds: int  # admissible pairs whose arms took different numbers of rounds
    repeats: Repeats  # ln(repeated / first) of the time per decoded token, by server and startup
    p_holm: float | None = None

    @property
    def level_ratio(self) -> float | None:
        if self.control.level_ms is None or self.candidate.level_ms is None:
            return None
        return self.candidate.level_ms / self.control.level_ms

    @property
    def control_drift(self) -> float | None:
        """Of the arm that nobody changed."""
        return self.drifts[0]

    @property
    def drifts(self) -> tuple[float | None, float | None]:
        """Of the control and, beside it, of the candidate: ln of the highest startup level over the lowest."""
        return self.control.drift, self.candidate.drift

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
    resolution_ms: float | None

    @property
    def corpus(self) -> bool:
        return bool(self.plan["corpus"])

    def resolution(self, control: ArmLevels) -> float | None:
        """Relative to the control's level."""
        if self.resolution_ms is None or not control.level_ms:
            return None
        return self.resolution_ms / control.level_ms


@dataclass(frozen=True)
class Part:
    """One group before it is judged: its rows, both arms, and the sample that speaks for it."""

    rows: pd.DataFrame
    control: ArmLevels
    candidate: ArmLevels
    sample: Sample

    @property
    def admissible(self) -> pd.DataFrame:
        return self.rows[self.rows.admissible]


def part(rows: pd.DataFrame, requests: pd.DataFrame, past: Past, setting: Setting) -> Part:
    """`rows` are all its pairs, `requests` all of the campaign's."""
    admissible = rows[rows.admissible]
    control, candidate = (_side(requests, rows, role, setting) for role in (Role.CONTROL, Role.CANDIDATE))
    sample = Sample(
        pairs=pair_effects(admissible, setting.source),
        n_recorded=len(rows),
        resolution=setting.resolution(control),
        past=past,
        levels={startup: math.log(ms * 1e6) for startup, ms in control.startup_levels_ms.items()},
        settle=_settle(admissible, setting.source, Role.CONTROL),
        repeats=repeat_trends(requests, admissible, setting.plan, setting.source),
    )
    return Part(rows, control, candidate, sample)


def build(name: str, of: Part, judgement: Judgement, setting: Setting) -> Group:
    rows, whole, agreeing = of.rows, setting.corpus or of.rows.empty, exact(of.rows)
    return Group(
        id=name,
        fixture=name if whole else str(rows.fixture.iloc[0]),
        seed=None if whole else int(rows.seed.iloc[0]),
        n_pairs=len(rows),
        n_prompts=_n_prompts(rows, agreeing),
        n_exact_pairs=int(agreeing.sum()),
        n_admissible_pairs=int(rows.admissible.sum()),
        judgement=judgement,
        control=of.control,
        candidate=of.candidate,
        settle_drift=of.sample.settle,
        candidate_settle_drift=_settle(of.admissible, setting.source, Role.CANDIDATE),
        divergences=_divergences(rows),
        n_outliers=len(outliers([effect.delta_log for effect in of.sample.pairs])),
        n_unequal_rounds=int((unequal_rounds(rows) & rows.admissible).sum()),
        repeats=of.sample.repeats,
    )


def _n_prompts(rows: pd.DataFrame, agreeing: pd.Series) -> int:
    """Different prompts and seeds; a seed that was not kept is like another that was not."""
    columns = (rows[name].tolist() for name in _PROMPT)
    kept = [row for row, agrees in zip(zip(*columns, strict=True), agreeing, strict=True) if agrees]
    return len({(*prompt, None if math.isnan(sent) else sent) for *prompt, sent in kept})


def _divergences(rows: pd.DataFrame) -> tuple[str, ...]:
    differ = rows.divergence_index.notna()
    return tuple(_divergence(row) for row in rows.loc[differ, _PARTED].itertuples()) if differ.any() else ()


def unequal_rounds(pairs: pd.DataFrame) -> pd.Series:
    """Where both arms counted their rounds, to different numbers: no round of one is then like one of the other."""
    control, candidate = pairs.control_n_rounds, pairs.candidate_n_rounds
    return control.notna() & candidate.notna() & (control != candidate)


def _side(requests: pd.DataFrame, rows: pd.DataFrame, role: Role, setting: Setting) -> ArmLevels:
    counted = requests.request_id.isin(rows.loc[rows.admissible, f"{role}_request_id"])
    of_arm = (requests.phase == "warmup") & (requests.role == role.value)
    warmups = of_arm & requests.fixture.isin(rows.fixture.unique())
    counted_rows, warmup_rows = (Rows(requests, chosen.to_numpy()) for chosen in (counted, warmups))
    return arm_levels(counted_rows, warmup_rows, setting.source, summed=setting.corpus)


def _settle(admissible: pd.DataFrame, source: Source, role: Role) -> dict[int, float]:
    """By startup, of the averages in the order of running."""
    columns = (admissible[name].tolist() for name in (f"{role}_position", "startup", f"{role}_{source.level_column}"))
    known = [row for row in zip(*columns, strict=True) if not math.isnan(row[2])]
    found: dict[int, list[float]] = {}
    for _, startup, ms in sorted(known, key=itemgetter(0)):
        found.setdefault(int(startup), []).append(ms)
    drifts = {startup: settle_drift(found[startup]) for startup in sorted(found)}
    return {startup: drift for startup, drift in drifts.items() if drift is not None}


def _divergence(row: Any) -> str:
    control, candidate = json.loads(row.divergence_ids)
    where = f"startup {row.startup + 1}, {row.fixture}, seed {row.seed}, repeat {row.repeat}"
    return f"{where}: token {int(row.divergence_index)}, control {control}, candidate {candidate}"


def group_effects(reader: Reader, campaign_id: str) -> dict[str, list[PairEffect]]:
    """The effects of a campaign's admissible pairs, by group: the short way for floors and histories."""
    requests = frames.requests(reader, campaign_id)
    pairs = excluded(frames.pairs(reader, campaign_id, requests), reader.failures(campaign_id))
    groups = grouped(pairs, json.loads(reader.campaign(campaign_id).plan_json))
    source = source_of(frames.measured(requests))
    return {name: pair_effects(rows[rows.admissible], source) for name, rows in groups.items()}

"""What was measured over time: one row per campaign and fixture, judged like a report but from pairs alone.

Statements across campaigns rest on paired effects, never on absolute times. A pair's effect is the one that was
computed when it was recorded; a report recomputes it where the requests of a campaign do not share one clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import bindparam, text

from campaigns.errors import UsageError
from campaigns.judging.past import Past
from campaigns.judging.repeats import Repeats
from campaigns.judging.rules import rules_of
from campaigns.judging.statistics import percent
from campaigns.judging.verdicts import Judgement, Sample, Setting, Verdict
from campaigns.nearest import nearest
from campaigns.plan import Role
from results.conditions.load import waits
from results.conditions.profiles import is_profiled
from results.reading.effects import Effects, Memory, effects
from results.reading.exclusions import group_names
from results.reading.looks import setting_of
from results.reading.past import Told, known, left_out, lending
from results.reading.repeats import campaign_repeats
from results.store.reader import Reader

_CAMPAIGNS = text("""
SELECT campaign_id, name, created_utc, methodology_version, plan_json, fingerprint, provenance
FROM campaign ORDER BY created_utc, rowid
""")
_RESOLUTIONS = text("""
SELECT s.campaign_id, max(json_extract(s.calibration, '$.resolution_ns')) AS ns FROM startup s
WHERE s.campaign_id IN :campaigns GROUP BY s.campaign_id
""").bindparams(bindparam("campaigns", expanding=True))

ENERGIES = tuple(f"{role.value}_j_per_token" for role in Role)
COLUMNS = (
    "campaign_id",
    "created_utc",
    "name",
    "mode",
    "control",
    "candidate",
    "gpu",
    "model",
    "fixture",
    "n_startups",
    "n_pairs",
    "n_admissible",
    "effect_pct",
    "lowest_pct",
    "highest_pct",
    "ci_low_pct",
    "ci_high_pct",
    "noise_floor_pct",
    "evidence",
    "verdict",
    "tags",
    *ENERGIES,
)


@dataclass(frozen=True)
class Filter:
    """Each given word must be part of the value it names; `verdict` must be equal; `since` is a UTC prefix."""

    arm: str = ""
    gpu: str = ""
    host: str = ""
    model: str = ""
    since: str = ""
    fixture: str = ""
    verdict: str = ""
    mode: str = ""
    name: str = ""
    tag: str = ""  # exactly this
    archived: bool = False  # those that were put aside as well
    campaigns: frozenset[str] | None = None  # only these

    def takes(self, about: Mapping[str, Any]) -> bool:
        named = all(_has(about, part, getattr(self, part)) for part in _NAMES)
        listed = self.campaigns is None or about["campaign_id"] in self.campaigns
        tagged = not self.tag or self.tag in about["tags"].split(", ")
        shown = self.archived or not about["archived"]
        return bool(named and listed and tagged and shown and about["created_utc"] >= self.since)


EVERYTHING = Filter()
_NAMES = ("arm", "gpu", "host", "model", "mode", "name")


def _has(about: Mapping[str, Any], part: str, word: str) -> bool:
    """Whether one of the campaign's names of this kind has the word in it."""
    return not word or any(word.lower() in name.lower() for name in about["names"][part])


class Judged:
    """What a process that is asked many times remembers: effects, and what came from the same effects."""

    def __init__(self) -> None:
        self.effects = Memory()
        self._repeats: dict[str, tuple[Mapping[str, Effects], Mapping[str, Repeats]]] = {}
        self._rows: dict[str, tuple[Any, list[dict[str, Any]]]] = {}

    def rows(self, name: str, basis: Any, make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        known = self._rows.get(name)
        if known is None or known[0] != basis:
            known = self._rows[name] = (basis, make())
        return known[1]

    def repeats(
        self, reader: Reader, plans: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Effects]]
    ) -> dict[str, Mapping[str, Repeats]]:
        """Of the campaigns in `plans`; read of all that grew at once, whatever their verdict will be."""
        old = [name for name in plans if name not in self._repeats or self._repeats[name][0] is not found[name]]
        read = campaign_repeats(reader, {name: plans[name] for name in old}, found)
        self._repeats |= {name: (found[name], repeats) for name, repeats in read.items()}
        return {name: self._repeats[name][1] for name in plans}


def history(reader: Reader, wanted: Filter = EVERYTHING, memory: Judged | None = None) -> pd.DataFrame:
    """COLUMNS, oldest first."""
    chosen = [about for about in _every(reader) if wanted.takes(about)]
    rows = (
        [row for row in _rows(reader, chosen, memory or Judged()) if wanted.fixture in row["fixture"]] if chosen else []
    )
    frame = pd.DataFrame([[row[column] for column in COLUMNS] for row in rows], columns=list(COLUMNS))
    return frame[frame.verdict == wanted.verdict] if wanted.verdict else frame


def chosen(reader: Reader, wanted: Filter, *, profiled: bool = False) -> list[dict[str, Any]]:
    """The campaigns that a filter takes, oldest first, whatever they measured; `profiled` runs too."""
    return [about for about in _every(reader, profiled=profiled) if wanted.takes(about)]


def check(reader: Reader, wanted: Filter) -> None:
    """UsageError for a word that no recorded campaign has: an empty answer would look like a slow year."""
    every = _every(reader)
    for part in (*_NAMES, "fixture"):
        word = getattr(wanted, part)
        known = [name for about in every for name in about["names"][part]]
        if word and not any(_has(about, part, word) for about in every):
            raise UsageError(f"--{part} {word}: no recorded campaign has it; {nearest(word, known)}")
    tags = dict.fromkeys(tag for about in every for tag in about["tags"].split(", ") if tag)
    if wanted.tag and wanted.tag not in tags:
        raise UsageError(f"--tag {wanted.tag}: no recorded campaign has it; {nearest(wanted.tag, tags)}")
    if wanted.verdict and wanted.verdict not in list(Verdict):
        raise UsageError(f"--verdict {wanted.verdict}: there is no such verdict; {nearest(wanted.verdict, Verdict)}")


def _every(reader: Reader, *, profiled: bool = False) -> list[dict[str, Any]]:
    """Profiled runs are left out: they measured nothing that could be set beside a measurement."""
    tags, archived = reader.tags(), reader.archived()
    rows = [_about(dict(row)) for row in reader.connection.execute(_CAMPAIGNS).mappings()]
    return [
        {**row, "tags": ", ".join(tags.get(row["campaign_id"], ())), "archived": row["campaign_id"] in archived}
        for row in rows
        if profiled or not row["profiled"]
    ]


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    """A campaign's columns; `names` has what a filter may ask for."""
    plan, fingerprint = json.loads(row["plan_json"]), json.loads(row["fingerprint"])
    arms = plan["control"], plan["candidate"]
    columns = {
        "campaign_id": row["campaign_id"],
        "created_utc": row["created_utc"],
        "name": row["name"],
        "mode": plan["mode"],
        "control": plan["control"]["name"],
        "candidate": plan["candidate"]["name"],
        "gpu": _names(fingerprint.get("host.device_names", "")),
        "model": plan["server"]["model"] or fingerprint.get("weights_sha256", "")[:12],
    }
    names: dict[str, tuple[str, ...]] = {part: (columns[part],) for part in ("gpu", "model", "mode", "name")}
    host = json.loads(row["provenance"]).get("host") or {}
    names["host"] = tuple(str(host[part]) for part in ("name", "cpu") if host.get(part))
    names["arm"] = tuple(name for arm in arms for name in (arm["name"], *map("/".join, arm["schedules"])))
    names["fixture"] = tuple(fixture["dataset"] if plan["corpus"] else fixture["id"] for fixture in plan["fixtures"])
    groups = tuple(dict.fromkeys(group_names(plan).values()))
    return {
        **columns,
        "names": names,
        "groups": groups,
        "profiled": is_profiled(plan),
        "methodology": row["methodology_version"],
    }


def _names(text: str) -> str:
    """A fingerprint keeps lists as JSON text."""
    return ", ".join(json.loads(text)) if text.startswith("[") else text


def _rows(reader: Reader, chosen: Sequence[Mapping[str, Any]], memory: Judged) -> Iterator[dict[str, Any]]:
    """Each campaign judged as its report does, by the rules of its version."""
    every = known(reader)
    by_id = {each.campaign_id: each for each in every}
    found = effects(reader, {each.campaign_id: each.plan for each in every}, memory.effects)
    resolutions = _resolutions(reader, list(by_id))
    without, told, overloaded = left_out(reader), Told(found), waits(reader)
    repeats = memory.repeats(
        reader, {about["campaign_id"]: by_id[about["campaign_id"]].plan for about in chosen}, found
    )
    for about in (about for about in chosen if about["campaign_id"] not in reader.damaged):
        one = by_id[about["campaign_id"]]
        groups, resolution = found[one.campaign_id], resolutions.get(one.campaign_id)
        entering = [name for name, group in groups.items() if group.pairs]
        each, whole = told.pasts(one, lending(one, every, without), entering)
        setting = setting_of(one.plan, whole, overloaded.get(one.campaign_id, ""), resamples=0)
        basis = (groups, resolution, each, setting, repeats[one.campaign_id])
        judge = partial(_judge, about["methodology"], *basis)
        yield from ({**about, **row} for row in memory.rows(one.campaign_id, basis, judge))


def _judge(
    methodology: int,
    groups: Mapping[str, Effects],
    resolution: float | None,
    each: Mapping[str, Past],
    setting: Setting,
    repeats: Mapping[str, Repeats],
) -> list[dict[str, Any]]:
    samples = {
        name: _sample(group, resolution, each.get(name, Past()), repeats.get(name, {}))
        for name, group in groups.items()
    }
    if not samples:
        return []
    judged = rules_of(methodology)(samples, setting)
    return [
        {"fixture": name, **_figures(judgement, groups[name].n_recorded), **_energies(groups[name])}
        for name, judgement in judged.fixtures.items()
    ]


def _energies(group: Effects) -> dict[str, float | None]:
    return dict(zip(ENERGIES, map(group.energy_per_token_j.get, Role), strict=True))


def _resolutions(reader: Reader, ids: Sequence[str]) -> dict[str, float]:
    """In ns, of each campaign's client."""
    return {row.campaign_id: row.ns for row in reader.connection.execute(_RESOLUTIONS, {"campaigns": ids})}


def _sample(group: Effects, resolution_ns: float | None, past: Past, repeats: Repeats) -> Sample:
    level_ns = math.exp(float(np.median(list(group.levels.values())))) if group.levels else None
    relative = resolution_ns / level_ns if resolution_ns is not None and level_ns else None
    return Sample(group.pairs, group.n_recorded, relative, past, group.levels, group.settle, repeats)


def _figures(judged: Judgement, n_recorded: int) -> dict[str, Any]:
    medians, interval = list(judged.startup_medians.values()), judged.interval
    return {
        "n_startups": judged.n_startups,
        "n_pairs": n_recorded,
        "n_admissible": judged.n_pairs,
        "effect_pct": _pct(judged.effect),
        "lowest_pct": _pct(min(medians, default=None)),
        "highest_pct": _pct(max(medians, default=None)),
        "ci_low_pct": _pct(interval.low if interval else None),
        "ci_high_pct": _pct(interval.high if interval else None),
        "noise_floor_pct": _pct(judged.floor.value if judged.floor else None),
        "evidence": judged.evidence.value,
        "verdict": judged.verdict.value,
    }


def _pct(value: float | None) -> float | None:
    return None if value is None else percent(value)

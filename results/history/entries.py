"""What was measured over time: one row per campaign and fixture, judged like a report but from pairs alone.

Statements across campaigns rest on paired effects, never on absolute times. A pair's effect is the one that was
computed when it was recorded; a report recomputes it where the requests of a campaign do not share one clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import bindparam, text

from campaigns.errors import UsageError
from campaigns.judging.statistics import PairEffect, by_startup, percent, startup_medians
from campaigns.judging.verdicts import Context, Verdict, judge
from campaigns.nearest import nearest
from results.reading.floors import family
from results.reading.groups import EXCLUDING, excluded, grouped
from results.store.reader import Reader

_CAMPAIGNS = text("""
SELECT campaign_id, name, created_utc, plan_json, fingerprint FROM campaign ORDER BY created_utc, rowid
""")
_PAIRS = text("""
SELECT p.campaign_id, p.startup, p.fixture, p.seed, p.repeat, p.delta_log, p.admissible, p.reasons, p.exactness,
    r.order_in_pair = 0 AS control_first, r.position, r.startup_attempt AS control_startup_attempt,
    coalesce(r.engine_decode_ns, r.last_content_ns - r.first_content_ns) * 1.0 / nullif(r.n_rounds, 0) AS control_ns
FROM pair p
JOIN request r ON r.campaign_id = p.campaign_id AND r.startup = p.startup AND r.fixture = p.fixture AND r.seed = p.seed
    AND r.repeat = p.repeat AND r.block_attempt = p.block_attempt AND r.role = 'control' AND r.phase = 'measure'
WHERE p.campaign_id IN :campaigns AND p.block_attempt = (
    SELECT max(b.attempt) FROM block b WHERE b.campaign_id = p.campaign_id AND b.startup = p.startup
        AND b.fixture = p.fixture AND b.seed = p.seed)
ORDER BY p.campaign_id, p.startup, r.position
""").bindparams(bindparam("campaigns", expanding=True))
_RESOLUTIONS = text("""
SELECT s.campaign_id, max(json_extract(s.calibration, '$.resolution_ns')) AS ns FROM startup s
WHERE s.campaign_id IN :campaigns GROUP BY s.campaign_id
""").bindparams(bindparam("campaigns", expanding=True))

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
)


@dataclass(frozen=True)
class Filter:
    """Each given word must be part of the value it names; `verdict` must be equal; `since` is a UTC prefix."""

    arm: str = ""
    gpu: str = ""
    model: str = ""
    since: str = ""
    fixture: str = ""
    verdict: str = ""
    mode: str = ""
    name: str = ""
    campaigns: frozenset[str] | None = None  # only these

    def takes(self, about: Mapping[str, Any]) -> bool:
        named = all(_has(about, part, getattr(self, part)) for part in _NAMES)
        listed = self.campaigns is None or about["campaign_id"] in self.campaigns
        return bool(named and listed and about["created_utc"] >= self.since)


EVERYTHING = Filter()
_NAMES = ("arm", "gpu", "model", "mode", "name")


def _has(about: Mapping[str, Any], part: str, word: str) -> bool:
    """Whether one of the campaign's names of this kind has the word in it."""
    return any(word.lower() in name.lower() for name in about["names"][part])


@dataclass(frozen=True)
class _Measured:
    """The pairs of one campaign and fixture."""

    effects: list[PairEffect]
    n_recorded: int
    resolution: float | None  # of the client, relative to the control's level


def history(reader: Reader, wanted: Filter = EVERYTHING) -> pd.DataFrame:
    """COLUMNS, oldest first."""
    every = _every(reader)
    chosen = [about for about in every if wanted.takes(about)]
    measured = _measure(reader, every) if chosen else {}
    every, chosen = ([a for a in some if a["campaign_id"] not in reader.damaged] for some in (every, chosen))
    rows = [
        _row(about, fixture, measured, every)
        for about in chosen
        for fixture in measured[about["campaign_id"]]
        if wanted.fixture in fixture
    ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame[frame.verdict == wanted.verdict] if wanted.verdict else frame


def chosen(reader: Reader, wanted: Filter) -> list[dict[str, Any]]:
    """The campaigns that a filter takes, oldest first, whatever they measured."""
    return [about for about in _every(reader) if wanted.takes(about)]


def check(reader: Reader, wanted: Filter) -> None:
    """UsageError for a word that no recorded campaign has: an empty answer would look like a slow year."""
    every = _every(reader)
    for part in (*_NAMES, "fixture"):
        word = getattr(wanted, part)
        known = [name for about in every for name in about["names"][part]]
        if word and not any(_has(about, part, word) for about in every):
            raise UsageError(f"--{part} {word}: no recorded campaign has it; {nearest(word, known)}")
    if wanted.verdict and wanted.verdict not in list(Verdict):
        raise UsageError(f"--verdict {wanted.verdict}: there is no such verdict; {nearest(wanted.verdict, Verdict)}")


def _every(reader: Reader) -> list[dict[str, Any]]:
    return [_about(dict(row)) for row in reader.connection.execute(_CAMPAIGNS).mappings()]


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
    names = {part: (columns[part],) for part in ("gpu", "model", "mode", "name")}
    names["arm"] = tuple(name for arm in arms for name in (arm["name"], *map("/".join, arm["schedules"])))
    names["fixture"] = tuple(fixture["dataset"] if plan["corpus"] else fixture["id"] for fixture in plan["fixtures"])
    return {**columns, "names": names, "plan": plan, "family": family(fingerprint)}


def _names(text: str) -> str:
    """A fingerprint keeps lists as JSON text."""
    return ", ".join(json.loads(text)) if text.startswith("[") else text


def _measure(reader: Reader, every: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, _Measured]]:
    ids = {"campaigns": [about["campaign_id"] for about in every]}
    frame = pd.read_sql(_PAIRS, reader.connection, params=ids)
    frame["admissible"] = frame.admissible.astype(bool)
    _set_aside(reader, frame)
    by_campaign = {str(name): rows.copy() for name, rows in frame.groupby("campaign_id", sort=False)}
    resolutions = {row.campaign_id: row.ns for row in reader.connection.execute(_RESOLUTIONS, ids)}
    measured: dict[str, dict[str, _Measured]] = {about["campaign_id"]: {} for about in every}
    for about in every:
        campaign_id = about["campaign_id"]
        if campaign_id in by_campaign:
            with reader.damaged.sparing(campaign_id):
                failures = [failure for failure in reader.failures(campaign_id) if failure.reason in EXCLUDING]
                groups = grouped(excluded(by_campaign[campaign_id], failures), about["plan"])
                measured[campaign_id] = {n: _measured(rows, resolutions.get(campaign_id)) for n, rows in groups.items()}
    return measured


def _set_aside(reader: Reader, frame: pd.DataFrame) -> None:
    """Figures that are none would spoil the column for every campaign."""
    for name in ("delta_log", "control_ns"):
        numbers = pd.to_numeric(frame[name], errors="coerce").replace([math.inf, -math.inf], math.nan)
        for campaign_id in frame.campaign_id[numbers.isna() & frame[name].notna()].unique():
            reader.damaged.add(str(campaign_id), f"a pair's {name} is no number")
        frame[name] = numbers


def _measured(rows: pd.DataFrame, resolution_ns: float | None) -> _Measured:
    timed = rows[rows.admissible & rows.delta_log.notna()]
    columns = zip(timed.startup, timed.delta_log, timed.control_first, strict=True)
    level_ns = float(timed.groupby("startup").control_ns.median().median()) if len(timed) else None
    return _Measured(
        [PairEffect(int(startup), float(delta), bool(first)) for startup, delta, first in columns],
        len(rows),
        resolution_ns / level_ns if resolution_ns is not None and level_ns else None,
    )


def _row(
    about: Mapping[str, Any],
    fixture: str,
    measured: Mapping[str, Mapping[str, _Measured]],
    every: Sequence[Mapping[str, Any]],
) -> list[Any]:
    found = measured[about["campaign_id"]][fixture]
    floor = tuple(_floor(about, fixture, measured, every))
    context = Context(int(about["plan"]["seed"]), found.resolution, floor, resamples=0)
    judged = judge(found.effects, found.n_recorded, context)
    medians = list(judged.startup_medians.values())
    interval = judged.interval
    figures = {
        "fixture": fixture,
        "n_startups": judged.n_startups,
        "n_pairs": found.n_recorded,
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
    return [figures.get(column, about.get(column)) for column in COLUMNS]


def _floor(
    about: Mapping[str, Any],
    fixture: str,
    measured: Mapping[str, Mapping[str, _Measured]],
    every: Sequence[Mapping[str, Any]],
) -> Iterator[float]:
    """Startup medians of the A/A campaigns that may lend their noise floor."""
    for other in every:
        if other["mode"] == "aa" and other is not about and other["family"] == about["family"]:
            found = measured[other["campaign_id"]].get(fixture)
            yield from startup_medians(by_startup(found.effects)).values() if found else ()


def _pct(value: float | None) -> float | None:
    return None if value is None else percent(value)

"""A running campaign at this moment: what the store, its journal and its servers' logs say. Reads only.

Effects of a campaign that runs are not final, so they are medians of the pairs so far: no interval, no verdict.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import text

from campaigns.judging.statistics import percent
from campaigns.printable import one_line, printable
from campaigns.records import CampaignStatus
from orchestrator.output.eta import in_words
from orchestrator.output.journal import outputs_folder
from results.history.status import standing
from results.store.reader import Reader

_TAIL_BYTES = 4096
_TAIL_LINES = 12
_NEWEST = text("""
SELECT p.startup, p.fixture, p.seed, p.repeat, p.delta_log, p.admissible, p.reasons, p.exactness
FROM pair p WHERE p.campaign_id = :campaign AND p.block_attempt = (
    SELECT max(b.attempt) FROM block b WHERE b.campaign_id = p.campaign_id AND b.startup = p.startup
        AND b.fixture = p.fixture AND b.seed = p.seed) ORDER BY p.id
""")
_SAMPLES = text("""
SELECT device_uuid, sm_clock_mhz, power_mw, temperature_c, load FROM device_sample
WHERE id IN (SELECT max(id) FROM device_sample WHERE campaign_id = :campaign GROUP BY device_uuid)
""")
_ROUNDS = text("""
SELECT coalesce(sum(n_rounds), 0) FROM request WHERE campaign_id = :campaign
""")


@dataclass(frozen=True)
class Effect:
    fixture: str
    n_pairs: int
    n_exact: int
    startups: tuple[str, ...]  # median effect of each, as text
    effect: str


@dataclass(frozen=True)
class Live:
    """What the live page shows; plain values, each of them text that a template escapes."""

    status: str
    running: bool
    n_pairs: int
    n_planned: int
    startup: int  # from 1; 0 before the first
    n_startups: int
    n_rounds: int
    left: str = ""
    doing: str = ""
    effects: tuple[Effect, ...] = ()
    devices: tuple[str, ...] = ()
    log_name: str = ""
    log: tuple[str, ...] = ()


def live(reader: Reader, campaign_id: str, pairs: Sequence[Mapping[str, Any]] | None = None) -> Live:
    """A campaign that has ended shows only how far it came. `pairs` where `pairs_of` has read them already."""
    pairs = pairs_of(reader, campaign_id) if pairs is None else pairs
    campaign = reader.campaign(campaign_id)
    now = standing(reader, campaign)
    plan, asked = json.loads(campaign.plan_json), {"campaign": campaign_id}
    ended = Live(
        status=now.status.value,
        running=False,
        n_pairs=now.n_recorded,
        n_planned=now.n_planned,
        startup=max((int(pair["startup"]) for pair in pairs), default=-1) + 1,
        n_startups=int(plan["startups"]),
        n_rounds=int(reader.connection.scalar(_ROUNDS, asked)),
    )
    if now.status is not CampaignStatus.RUNNING:
        return ended
    folder = outputs_folder(reader.path, campaign_id)
    begun = [event.utc for event in reader.status_history(campaign_id) if event.status is CampaignStatus.RUNNING]
    began = datetime.fromisoformat(begun[-1]).timestamp() if begun else 0.0
    events = [event for event in _events(folder / "campaign.jsonl") if event["utc"] >= began]  # of this life
    log_name, log = _log(folder)
    samples = [dict(row) for row in reader.connection.execute(_SAMPLES, asked).mappings()]
    return replace(
        ended,
        running=True,
        left=_left(events),
        doing=_doing(events),
        effects=tuple(_effects(pairs, int(plan["required_exactness"]))),
        devices=tuple(_device(sample) for sample in samples),
        log_name=log_name,
        log=log,
    )


def pairs_of(reader: Reader, campaign_id: str) -> list[dict[str, Any]]:
    """Every pair of the newest block attempts, in the order of running."""
    found = reader.connection.execute(_NEWEST, {"campaign": campaign_id})
    names = list(found.keys())
    return [dict(zip(names, row, strict=True)) for row in found]


def _effects(pairs: Sequence[Mapping[str, Any]], required: int) -> list[Effect]:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for pair in pairs:
        groups[f"{pair['fixture']} seed {pair['seed']}"].append(pair)
    return [_effect(name, rows, required) for name, rows in list(groups.items())[:24]]


def _effect(name: str, rows: Sequence[Mapping[str, Any]], required: int) -> Effect:
    by_startup: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row["admissible"] and row["delta_log"] is not None:
            by_startup[int(row["startup"])].append(float(row["delta_log"]))
    medians = [statistics.median(values) for _, values in sorted(by_startup.items())]
    whole = f"{percent(statistics.median(medians)):+.1f} %" if medians else "none yet"
    exact = sum(row["exactness"] >= required for row in rows)
    return Effect(name, len(rows), exact, tuple(f"{percent(median):+.1f} %" for median in medians), whole)


def _device(sample: Mapping[str, Any]) -> str:
    said = [
        f"{sample['sm_clock_mhz']} MHz" if sample["sm_clock_mhz"] is not None else "",
        f"{sample['power_mw'] / 1e3:.0f} W" if sample["power_mw"] is not None else "",
        f"{sample['temperature_c']} °C" if sample["temperature_c"] is not None else "",
        f"load {sample['load']:.2f}" if sample["load"] is not None else "",
    ]
    return f"{sample['device_uuid']}: {', '.join(filter(None, said)) or 'says nothing of itself'}"


def _events(path: Path) -> list[dict[str, Any]]:
    """A line that is being written is left for the next look."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return [event for event in events if isinstance(event, dict) and isinstance(event.get("utc"), float | int)]


def _left(events: list[dict[str, Any]]) -> str:
    """What the driver told with its newest pair, on its terminal too."""
    told = [event for event in events if event["event"] == "pair"]
    if not told:
        return "known after the first pair"
    left_s = told[-1].get("left_s")
    return in_words(left_s, told[-1].get("left_at_least") is True) if isinstance(left_s, float | int) else ""


def _doing(events: list[dict[str, Any]]) -> str:
    """The newest thing that the journal tells."""
    if not events:
        return "starting"
    newest = events[-1]
    key = newest.get("key")
    if isinstance(key, dict):
        where = f"startup {key.get('startup', 0) + 1}, {key.get('fixture')} #{key.get('repeat', 0) + 1}"
        return one_line(f"{newest['event']} {where}")
    if newest["event"] == "now":
        return one_line(str(newest.get("what")))
    told = newest.get("message") or ""
    if newest["event"] == "startup":
        told = f"{newest.get('startup', 0) + 1} is up"
    return one_line(f"{newest['event']} {told}".strip())


def _log(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Name and last lines of the server's log that was written last; no lines where all are empty."""
    logs = [path for path in folder.glob("startup-*/**/server.log") if path.is_file()]
    if not logs:
        return "", ()
    newest = max(logs, key=lambda path: (path.stat().st_size > 0, path.stat().st_mtime))
    with newest.open("rb") as file:
        file.seek(max(0, newest.stat().st_size - _TAIL_BYTES))
        tail = file.read().decode("utf-8", "replace")
    return str(newest.relative_to(folder)), tuple(map(printable, tail.splitlines()[-_TAIL_LINES:]))

"""What each page shows, as plain values for its template. Reads the store, knows nothing of HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from sqlalchemy import text

from campaigns.errors import UsageError
from campaigns.judging.statistics import percent
from campaigns.plan import Role
from orchestrator.web.charts import Mark, chart, legend
from results.conditions.profiles import refuse_profiled
from results.history.comparison import differing, effects
from results.history.entries import Filter, Judged, chosen, history
from results.reading.exclusions import group_names
from results.reading.looks import n_planned
from results.reading.summary import Summary, summarise
from results.store.reader import Reader
from results.store.unchanged import require_unchanged

MAX_ROWS = 200
MAX_DRAWN = 100  # campaigns in a chart; each must be judged before it can be drawn
PER_PAGE = 50
_COUNT = text(
    "SELECT count(*) FROM (SELECT DISTINCT startup, fixture, seed, repeat FROM pair WHERE campaign_id = :campaign)"
)
_ANSWERS = text("""
SELECT role, arm, text, reasoning_text, finish_reason, completion_tokens, admissible, reasons, error FROM request
WHERE campaign_id = :campaign AND startup = :startup AND fixture = :fixture AND seed = :seed AND repeat = :repeat
    AND phase = 'measure' ORDER BY block_attempt DESC
""")


@dataclass(frozen=True)
class Line:
    """One campaign in the list."""

    campaign_id: str
    created_utc: str
    name: str
    arms: str
    model: str
    host: str
    commit: str
    tags: str
    baselines: str
    status: str
    pairs: str
    results: tuple[str, ...]  # one per fixture


@dataclass(frozen=True)
class Listed:
    """A page of the list."""

    lines: tuple[Line, ...]
    n_found: int
    page: int  # from 1
    n_pages: int


def campaigns(reader: Reader, words: Mapping[str, str], memory: Judged | None = None) -> Listed:
    """Newest first; each word must be part of what it names, as for `campaign history`.

    Judging takes some ms a campaign: only those are judged which the page shows, or all where a verdict is asked for.
    """
    wanted, verdict = _filter(words), words.get("verdict", "")
    sets, baseline = reader.baselines(), words.get("baseline", "")
    found = [about["campaign_id"] for about in reversed(chosen(reader, wanted, profiled=True))]
    if baseline:
        found = [name for name in found if name in sets.get(baseline, ())]
    if verdict:
        judged = set(history(reader, replace(wanted, verdict=verdict), memory).campaign_id)
        found = [name for name in found if name in judged]
    page = max(1, int(words.get("page", "1"))) if words.get("page", "1").isdecimal() else 1
    shown = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    told: dict[str, list[Mapping[Any, Any]]] = {}
    if shown:
        for row in history(reader, replace(wanted, campaigns=frozenset(shown)), memory).to_dict("records"):
            told.setdefault(str(row["campaign_id"]), []).append(row)
    lines = [
        _line(reader, name, told.get(name, []), [each for each, ids in sets.items() if name in ids]) for name in shown
    ]
    return Listed(tuple(lines), len(found), page, max(1, -(-len(found) // PER_PAGE)))


def _line(reader: Reader, name: str, rows: Sequence[Mapping[Any, Any]], sets: Sequence[str]) -> Line:
    campaign = reader.campaign(name)
    plan = json.loads(campaign.plan_json)
    git, host = (campaign.provenance.get(part) or {} for part in ("git", "host"))
    n_recorded = reader.connection.scalar(_COUNT, {"campaign": name})
    return Line(
        name,
        campaign.created_utc,
        campaign.name,
        f"{plan['candidate']['name']} against {plan['control']['name']}",
        plan["server"]["model"] or plan["server"]["adapter"],
        ", ".join(filter(None, (str(host.get("name", "")), str(rows[0]["gpu"]) if rows else str(host.get("cpu", ""))))),
        str(git.get("git_commit", ""))[:12],
        ", ".join(reader.tags().get(name, ())),
        ", ".join(sets),
        reader.status(name).value,
        f"{n_recorded}/{n_planned(plan)}",
        tuple(_result(row) for row in rows[:6]),
    )


def _filter(words: Mapping[str, str]) -> Filter:
    names = ("arm", "gpu", "host", "model", "since", "name", "tag")
    told: dict[str, Any] = {name: words.get(name, "").strip() for name in names}
    return Filter(**told, archived=words.get("archived") == "yes")


def _result(row: Mapping[str, Any]) -> str:
    effect = row["effect_pct"]
    shown = f" {effect:+.1f} %" if effect is not None and effect == effect else ""
    return f"{row['fixture']}: {row['verdict']}{shown}"


# -- one campaign ----------------------------------------------------------------------------------------------------


def pair_plot(
    campaign_id: str, plan: Mapping[str, Any], pairs: Sequence[Mapping[str, Any]]
) -> tuple[Markup, list[dict[str, Any]]]:
    """The plot of all pairs by the groups that are judged, and rows for the table of the last MAX_ROWS of them."""
    names = group_names(plan)
    groups = {name: kind for kind, name in enumerate(dict.fromkeys(names.values()))}
    startups = sorted({int(pair["startup"]) for pair in pairs})
    spread = {startup: [p for p in pairs if p["startup"] == startup] for startup in startups}
    marks = [
        Mark(
            column=startups.index(startup) - 0.35 + 0.7 * (i + 0.5) / len(rows),
            value=percent(float(pair["delta_log"])),
            title=_pair_title(pair),
            kind=groups.get(names.get((pair["fixture"], None if plan["corpus"] else pair["seed"]), ""), 0),
            href=case_link(campaign_id, pair),
        )
        for startup, rows in spread.items()
        for i, pair in enumerate(rows)
        if pair["delta_log"] is not None and pair["admissible"]
    ][:2000]
    columns = [f"startup {startup + 1}" for startup in startups]
    plot = chart(marks, columns, "effect of every admissible pair") + legend(list(groups))
    table = [dict(pair, effect=_effect(pair), link=case_link(campaign_id, pair)) for pair in pairs[-MAX_ROWS:]]
    return plot, table


def _pair_title(pair: Mapping[str, Any]) -> str:
    where = f"startup {pair['startup'] + 1}, {pair['fixture']} seed {pair['seed']} #{pair['repeat'] + 1}"
    return f"{_effect(pair)}: {where}, E{pair['exactness']}"


def _effect(pair: Mapping[str, Any]) -> str:
    return "–" if pair["delta_log"] is None else f"{percent(float(pair['delta_log'])):+.2f} %"


def case_link(campaign_id: str, pair: Mapping[str, Any]) -> str:
    key = {name: pair[name] for name in ("startup", "fixture", "seed", "repeat")}
    return f"/campaign/{campaign_id}/case?{urlencode(key)}"


def answers(reader: Reader, campaign_id: str, key: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Both arms' answers of one pair, by role; UsageError where there is no such pair."""
    try:
        numbers = {name: int(key.get(name, "")) for name in ("startup", "seed", "repeat")}
    except ValueError:
        raise UsageError("startup, seed and repeat of a case are whole numbers") from None
    asked = {"campaign": campaign_id, "fixture": key.get("fixture", ""), **numbers}
    found: dict[str, dict[str, Any]] = {}
    for row in reader.connection.execute(_ANSWERS, asked).mappings():
        found.setdefault(str(row["role"]), dict(row))
    if not found:
        raise UsageError("no pair is recorded under this key")
    both = [found[role]["text"] for role in Role if role in found]
    shared = _shared(*both) if len(both) == 2 else 0
    return {role: dict(row, same=row["text"][:shared], rest=row["text"][shared:]) for role, row in found.items()}


def _shared(one: str, other: str) -> int:
    """Characters before the first that differs."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# -- many campaigns --------------------------------------------------------------------------------------------------


def over_time(
    reader: Reader, words: Mapping[str, str], memory: Judged | None = None
) -> tuple[list[str], str, Markup, list[dict[str, Any]]]:
    """Fixtures to choose from, the chosen one, its chart, and what is drawn: of the newest MAX_DRAWN campaigns."""
    wanted = _filter(words)
    found = chosen(reader, wanted)
    fixtures = list(dict.fromkeys(group for about in found for group in about["groups"]))
    fixture = words.get("fixture") or (found[-1]["groups"][-1] if found else "")
    newest = [about["campaign_id"] for about in found if fixture in about["groups"]][-MAX_DRAWN:]
    frame = history(reader, replace(wanted, campaigns=frozenset(newest)), memory)
    rows = frame[(frame.fixture == fixture) & frame.effect_pct.notna()].to_dict("records")
    commits = _commits(reader)
    for row in rows:
        row["commit"] = commits.get(str(row["campaign_id"]), "")
    newest_first = [{str(k): v for k, v in row.items()} for row in reversed(rows)]
    return fixtures, fixture, _history_chart(rows), newest_first


def _commits(reader: Reader) -> dict[str, str]:
    found = ((c.campaign_id, (c.provenance.get("git") or {}).get("git_commit", "")) for c in reader.campaigns())
    return {name: str(commit)[:10] for name, commit in found}


def _history_chart(rows: Sequence[Mapping[Any, Any]]) -> Markup:
    names = list(dict.fromkeys(str(row["candidate"]) for row in rows))
    marks = [
        Mark(
            column=i,
            value=float(row["effect_pct"]),
            title=f"{row['effect_pct']:+.2f} % {row['verdict']}: {row['candidate']} against {row['control']}, "
            f"{row['created_utc'][:16]}, commit {row['commit'] or 'unknown'}, {row['n_startups']} startups",
            kind=names.index(str(row["candidate"])),
            low=float(row["lowest_pct"]),
            high=float(row["highest_pct"]),
            href=f"/campaign/{row['campaign_id']}",
        )
        for i, row in enumerate(rows)
    ]
    columns = [str(row["created_utc"])[5:16].replace("T", " ") for row in rows]
    return chart(marks, columns, "paired effects over time") + legend(names)


def compared(reader: Reader, ids: Sequence[str]) -> dict[str, Any]:
    """Two to five campaigns side by side; where their declared orders differ no effects stand in one table."""
    chosen = list(dict.fromkeys(reader.resolve(name) for name in ids if name))
    if not 2 <= len(chosen) <= 5:
        raise UsageError(f"a comparison takes two to five campaigns, not {len(chosen)}")
    for name in chosen:
        require_unchanged(reader, name)
        refuse_profiled(reader, name, "compare sets side by side")
    summaries = [summarise(reader, name) for name in chosen]
    keys = differing(summaries)
    return {
        "summaries": summaries,
        "differences": [(key, [s.campaign.fingerprint.get(key, "") for s in summaries]) for key in keys],
        "orders_differ": "order" in keys,
        "effects": [] if "order" in keys else list(_effect_rows(summaries)),
    }


def _effect_rows(summaries: Sequence[Summary]) -> Iterator[tuple[str, list[str]]]:
    rows: dict[str, list[str]] = {}
    for _, _, fixture, effect, low, high, verdict in effects(summaries):
        ends = "" if low is None or high is None else f" ({low:+.1f} … {high:+.1f} %)"
        told = "not measured" if effect is None else f"{effect:+.2f} %{ends} {verdict}"
        rows.setdefault(str(fixture), []).append(told)
    yield from rows.items()

"""Campaigns side by side. Equal fingerprints may stand in one table; else the differing keys are the answer.

Only paired effects are compared across campaigns. Absolute levels appear where the fingerprints are equal, and are
labelled: they are not paired with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from campaigns.statistics import percent
from campaigns.verdicts import Judgement
from results import cells
from results.groups import Group
from results.layout import table
from results.summary import Summary


def compare(summaries: Sequence[Summary]) -> str:
    """Text for the terminal: what differs, then effects by fixture and campaign with a sign for the change."""
    keys = differing(summaries)
    parts = [_who(summaries)]
    if keys:
        rows = [[key, *(_short(s.campaign.fingerprint.get(key, "")) for s in summaries)] for key in keys]
        parts.append("Fingerprints differ:\n" + table(["key", *_names(summaries)], rows))
    if "order" in keys:
        return (
            "\n".join([*parts, "The declared orders differ: no common table (neighbours disturb each other)."]) + "\n"
        )
    parts.append("Paired effects:\n" + table(["fixture", *_names(summaries), "change"], _effect_rows(summaries)))
    if not keys:
        note = "Levels, control / candidate ms (not paired across campaigns):\n"
        parts.append(note + table(["fixture", *_names(summaries)], _level_rows(summaries)))
    return "\n".join(parts)


def differing(summaries: Sequence[Summary]) -> list[str]:
    prints = [summary.campaign.fingerprint for summary in summaries]
    names = sorted({name for fingerprint in prints for name in fingerprint})
    return [name for name in names if len({fingerprint.get(name) for fingerprint in prints}) > 1]


def sign(first: Judgement | None, last: Judgement | None) -> str:
    """From the first campaign to the last: + better, - worse, ~ no difference that the intervals allow, x missing."""
    if first is None or last is None or first.effect is None or last.effect is None:
        return "x"
    if first.interval is None or last.interval is None:
        return "~ (no interval)"
    if last.interval.high < first.interval.low:
        return "+"
    return "-" if last.interval.low > first.interval.high else "~"


def _who(summaries: Sequence[Summary]) -> str:
    lines = [
        f"{s.campaign.campaign_id}  {s.campaign.created_utc}  {s.campaign.name}: "
        f"{s.plan['candidate']['name']} against {s.plan['control']['name']}, {cells.verdict(s.judgement)}"
        for s in summaries
    ]
    return "\n".join(lines) + "\n"


def _effect_rows(summaries: Sequence[Summary]) -> list[list[str]]:
    rows = []
    for name in _fixtures(summaries):
        found = [_judgement(summary, name) for summary in summaries]
        rows.append([name, *map(_effect, found), sign(found[0], found[-1])])
    return rows


def _effect(judgement: Judgement | None) -> str:
    if judgement is None or judgement.effect is None:
        return cells.DASH
    interval = judgement.interval
    half = f" ± {percent(interval.half_width):.2f}" if interval else ""
    return f"{cells.effect(judgement.effect)}{half} {cells.verdict(judgement)}"


def _level_rows(summaries: Sequence[Summary]) -> list[list[str]]:
    return [[name, *(_level(summary, name) for summary in summaries)] for name in _fixtures(summaries)]


def _level(summary: Summary, name: str) -> str:
    group = _group(summary, name)
    return cells.DASH if group is None else cells.both(group.control.level_ms, group.candidate.level_ms, 6)


def _fixtures(summaries: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(group.id for summary in summaries for group in summary.groups))


def _group(summary: Summary, name: str) -> Group | None:
    return next((group for group in summary.groups if group.id == name), None)


def _judgement(summary: Summary, name: str) -> Judgement | None:
    group = _group(summary, name)
    return None if group is None else group.judgement


def _names(summaries: Sequence[Summary]) -> list[str]:
    return [summary.campaign.campaign_id[:8] for summary in summaries]


def _short(value: str) -> str:
    return value if len(value) <= 60 else f"{value[:57]}…"

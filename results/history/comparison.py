"""Campaigns side by side. Equal fingerprints may stand in one table; else the differing keys are the answer.

Only paired effects are compared across campaigns. Absolute levels appear where the fingerprints are equal, and are
labelled: they are not paired with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from campaigns.judging.statistics import percent
from campaigns.judging.verdicts import Judgement
from campaigns.printable import one_line
from results.reading.groups import Group
from results.reading.summary import Summary
from results.reports.layout import table
from results.reports.tables import cells

EFFECTS = ("campaign_id", "order", "fixture", "effect_pct", "ci_low_pct", "ci_high_pct", "verdict")
_EFFECT_HEADER = ("fixture", "campaign", "paired effect", "95 % interval", "noise floor", "verdict", "change")


def compare(summaries: Sequence[Summary]) -> str:
    """Text for the terminal: what differs, then effects by fixture and campaign, a sign for the change in the last."""
    keys = differing(summaries)
    parts = [_who(summaries)]
    if keys:
        rows = [[key, *(_short(s.campaign.fingerprint.get(key, "")) for s in summaries)] for key in keys]
        parts.append("Fingerprints differ:\n" + table(["key", *_names(summaries)], rows))
    if "order" in keys:
        return (
            "\n".join([*parts, "The declared orders differ: no common table (neighbours disturb each other)."]) + "\n"
        )
    parts.append("Paired effects:\n" + table(_EFFECT_HEADER, _effect_rows(summaries)))
    if not keys:
        note = "Levels, control / candidate ms (not paired across campaigns):\n"
        parts.append(note + table(["fixture", *_names(summaries)], _level_rows(summaries)))
    return "\n".join(parts)


def effects(summaries: Sequence[Summary]) -> list[tuple[str | float | None, ...]]:
    """EFFECTS for every fixture and campaign, as numbers; unknown is None. Orders that differ are told by column."""
    return [
        (s.campaign.campaign_id, s.plan["order"], name, *_numbers(_judgement(s, name)))
        for name in _fixtures(summaries)
        for s in summaries
    ]


def _numbers(judgement: Judgement | None) -> tuple[str | float | None, ...]:
    if judgement is None or judgement.effect is None:
        return None, None, None, None
    ends = (judgement.interval.low, judgement.interval.high) if judgement.interval else (None, None)
    percents = (None if value is None else percent(value) for value in (judgement.effect, *ends))
    return *percents, judgement.verdict.value


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
        one_line(
            f"{s.campaign.campaign_id}  {s.campaign.created_utc}  {s.campaign.name}: "
            f"{s.plan['candidate']['name']} against {s.plan['control']['name']}, {cells.verdict(s.judgement)}"
        )
        for s in summaries
    ]
    return "\n".join(lines) + "\n"


def _effect_rows(summaries: Sequence[Summary]) -> list[list[str]]:
    """As a report tells each of them; the change is the one from the first campaign to the last."""
    rows = []
    for name in _fixtures(summaries):
        found = [_judgement(summary, name) for summary in summaries]
        changes = [""] * (len(found) - 1) + [sign(found[0], found[-1])]
        rows += [
            [name, campaign, *_effect(judgement), change]
            for campaign, judgement, change in zip(_names(summaries), found, changes, strict=True)
        ]
    return rows


def _effect(judgement: Judgement | None) -> list[str]:
    if judgement is None or judgement.effect is None:
        return [cells.DASH] * 4
    told = (cells.interval(judgement), cells.floor(judgement), cells.verdict(judgement))
    return [cells.effect(judgement.effect), *told]


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

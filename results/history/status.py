"""Where campaigns stand: what is recorded of what was planned. Reads the store only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import shorten

from campaigns.judging.verdicts import counted
from campaigns.printable import one_line
from campaigns.records import Campaign, CampaignStatus
from results.conditions.health import told_once
from results.reading.looks import n_planned
from results.store.reader import Reader

_REASON = 100  # characters of it in a line; the report and the other formats have all of it
STANDING = ("campaign_id", "created_utc", "name", "status", "reason", "n_pairs", "n_planned_pairs", "tags")


@dataclass(frozen=True)
class Standing:
    campaign: Campaign
    status: CampaignStatus
    reason: str
    n_recorded: int
    n_planned: int
    tags: tuple[str, ...] = ()

    @property
    def row(self) -> tuple[str | int, ...]:
        """Under the names of STANDING."""
        c = self.campaign
        named = (c.campaign_id, c.created_utc, c.name, self.status.value, self.reason)
        return *named, self.n_recorded, self.n_planned, ", ".join(self.tags)

    @property
    def line(self) -> str:
        c = self.campaign
        reason = f"  ({shorten(self.reason, _REASON, placeholder=' …')})" if self.reason else ""
        pairs = f"{self.n_recorded}/{self.n_planned} pairs"
        tags = f"  [{', '.join(self.tags)}]" if self.tags else ""
        return one_line(f"{c.campaign_id}  {c.created_utc}  {self.status.value:<11}  {pairs}  {c.name}{tags}{reason}")


def standings(reader: Reader, *, archived: bool = False) -> list[Standing]:
    """Of every campaign that can be read, oldest first; `archived`: those as well that were put aside."""
    found, aside, tags = [], frozenset() if archived else reader.archived(), reader.tags()
    for campaign in reader.campaigns():
        if campaign.campaign_id not in aside:
            with reader.damaged.sparing(campaign.campaign_id):
                found.append(standing(reader, campaign, tags))
    return found


def standing(reader: Reader, campaign: Campaign, tags: Mapping[str, Sequence[str]] | None = None) -> Standing:
    history = reader.status_history(campaign.campaign_id)
    newest = history[-1] if history else None
    return Standing(
        campaign,
        reader.status(campaign.campaign_id),
        newest.reason if newest else "the driver died before it wrote a status",
        len(reader.recorded(campaign.campaign_id).pairs),
        n_planned(json.loads(campaign.plan_json)),
        tuple((reader.tags() if tags is None else tags).get(campaign.campaign_id, ())),
    )


def n_of_open_blocks(reader: Reader, campaign_id: str) -> int:
    """Recorded pairs of blocks that are not complete: `resume` measures them again, in one server life."""
    plan = json.loads(reader.campaign(campaign_id).plan_json)
    pairs = 1 if plan["corpus"] else int(plan["pairs"])
    counts = Counter((key.startup, key.fixture, key.seed) for key in reader.recorded(campaign_id).pairs)
    return sum(count for count in counts.values() if count < pairs)


def details(reader: Reader, campaign_id: str) -> list[str]:
    """The standing, then a line per startup, then status changes and failures in the order of time."""
    campaign = reader.campaign(campaign_id)
    recorded = Counter(key.startup for key in reader.recorded(campaign_id).pairs)
    lines = [standing(reader, campaign).line]
    lives = reader.lives(campaign_id)
    newest = {life.startup.startup: life for life in lives}
    for life in lives:
        end = "running or killed" if life.end is None else f"{life.end.status.value} {life.end.message}".strip()
        start = life.startup
        pairs = f"{counted(recorded[start.startup], 'pair')}, " if newest[start.startup] is life else ""
        lines.append(f"  startup {start.startup + 1}, attempt {start.attempt}: {pairs}{end}")
    events = [(e.utc, f"{e.status.value} {e.reason}".rstrip()) for e in reader.status_history(campaign_id)]
    failures = [(f.utc, f"{f.reason.value}: {f.message}") for f in told_once(reader.failures(campaign_id))]
    notes = [(n.utc, f"{n.mark.value} by {n.by}: {n.text}") for n in reader.annotations(campaign_id)]
    looks = [
        (look.utc, f"looked after {counted(look.n_seen, 'startup')}: {look.verdict}")
        for look in reader.looks(campaign_id)
    ]
    timeline = sorted([*failures, *events, *notes, *looks], key=lambda entry: datetime.fromisoformat(entry[0]))
    return lines + [f"  {utc} {_indented(what)}" for utc, what in timeline]


def _indented(text: str) -> str:
    """The end of a server's log has lines of its own."""
    return "\n      ".join(text.splitlines())

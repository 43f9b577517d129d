"""A proposal for the next campaign from one that was measured: variances of its effects, and what its parts cost."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from campaigns.design.planning import (
    ASSURANCE,
    MAX_STARTUPS,
    Proposal,
    Variances,
    assured_sd,
    ending,
    propose,
    variances,
)
from campaigns.errors import NothingAdmissible, UsageError
from campaigns.judging.looks import Looks
from campaigns.judging.past import NO_PAST
from campaigns.judging.statistics import by_startup, percent, startup_medians
from campaigns.judging.verdicts import counted
from campaigns.plan import StartupMode
from campaigns.records import StartupStatus
from results.reading import frames
from results.reading.effects import mean_startups
from results.reading.groups import group_effects
from results.reading.looks import looks_of, setting_of
from results.reports.layout import table
from results.store.reader import Life, Reader

_SPREADS = ("fixture", "sd in startups %", "sd between %")
_HEADER = (*_SPREADS, "startups", "pairs", "half width %", "80 % stay below %", "hours")


def forecast(reader: Reader, campaign_id: str, wanted: float, *, asked: bool) -> str:
    """A line per fixture, then the plan that serves them all. `wanted` is a half width as a logarithm.

    Of a campaign that shows no spread the costs alone, or NothingAdmissible where a half width was `asked` for.
    """
    found = {name: variances(by_startup(pairs)) for name, pairs in group_effects(reader, campaign_id).items()}
    known = {name: each for name, each in found.items() if each is not None}
    cost = costs(reader, campaign_id)
    if not known:
        lacks = f"campaign {campaign_id} has no two startups with two admissible pairs"
        if asked:
            raise NothingAdmissible(f"{lacks}: measure an A/A campaign first")
        return f"{lacks}: no precision can be told\n{cost.words()}\n{again(reader, campaign_id, cost)}"
    proposals = {name: propose(each, cost.startup_s, cost.pair_s, wanted) for name, each in known.items()}
    rows = [_row(name, known[name], proposal) for name, proposal in proposals.items()]
    header = (
        "fixture",
        "sd in startups %",
        "sd between %",
        "startups",
        "pairs",
        "half width %",
        "80 % below %",
        "hours",
    )
    return table(header, rows) + _conclusion(proposals, cost, wanted) + again(reader, campaign_id, cost)


def expectation(reader: Reader, campaign_id: str, effect: float) -> str:
    """How many startups a campaign takes that stops when it is decided, if its effect (a logarithm) is this one."""
    medians = [startup_medians(by_startup(pairs)) for pairs in group_effects(reader, campaign_id).values() if pairs]
    startups = list(mean_startups(medians).values()) if medians else []
    if len(startups) < 2:
        raise NothingAdmissible(f"campaign {campaign_id} has no two startups of all its fixtures: measure more first")
    plan = json.loads(reader.campaign(campaign_id).plan_json)
    looks = looks_of(plan) or Looks(3, 16)
    margin = math.log1p(setting_of(plan, NO_PAST, "").margin)
    sd = float(np.std(startups, ddof=1))
    wide = assured_sd(sd, len(startups))
    found, assured = (ending(effect, spread, looks, margin) for spread in (sd, wide))
    return (
        f"campaign.stop=decided campaign.min_startups={looks.first} campaign.startups={looks.last}, an effect of "
        f"{percent(effect):.2f} %, startups that spread by {percent(sd):.2f} %:\n"
        f"  {found.expected:.1f} startups expected, {looks.last} at worst; told in {100 * found.share_told:.0f} %\n"
        f"  {assured.expected:.1f} expected, told in {100 * assured.share_told:.0f} % where they spread by "
        f"{percent(wide):.2f} %, which {len(startups)} startups leave possible ({100 * ASSURANCE:.0f} % assurance)\n"
    )


@dataclass(frozen=True)
class Costs:
    """Seconds: of a campaign once (Ray, the lease), of a startup beside its measured requests (start, warm-ups, stop),
    of one pair of every fixture."""

    once_s: float
    startup_s: float
    pair_s: float

    def hours(self, startups: int, pairs: int) -> float:
        return (self.once_s + startups * (self.startup_s + pairs * self.pair_s)) / 3600

    def words(self) -> str:
        return f"a startup adds {self.startup_s:.1f} s, one pair of every fixture takes {self.pair_s:.1f} s"


def costs(reader: Reader, campaign_id: str) -> Costs:
    requests = frames.requests(reader, campaign_id)
    seconds = _spans_s(requests, json.loads(reader.campaign(campaign_id).plan_json))
    measured, warm = requests.phase == "measure", requests.phase == "warmup"
    per_arm = requests[measured].assign(s=seconds[measured]).groupby(["fixture", "seed", "role"]).s.mean()
    pair_s = float(per_arm.sum())
    if not pair_s:
        raise UsageError(f"campaign {campaign_id} has no measured request: there is nothing to plan from")
    lives = reader.lives(campaign_id)
    ready = [life.startup.ready_ns for life in lives if life.startup.ready_ns is not None]
    told_s = sum(ready) / len(ready) * 1e-9 if ready else 0.0
    startup_s = told_s + float(seconds[warm].sum()) / max(1, requests.startup.nunique())
    asked = seconds[measured].groupby(requests[measured].startup).sum()
    beside = [lived - float(asked.get(startup, 0.0)) for startup, lived in _lived(lives).items()]
    # A store of another clock, or of a stopped startup, may say less than what is known from its requests.
    startup_s = max([startup_s, *([sum(beside) / len(beside)] if beside else [])])
    began = min((_utc(life.startup.created_utc) for life in lives), default=None)
    once_s = (began - _utc(reader.campaign(campaign_id).created_utc)).total_seconds() if began else 0.0
    return Costs(max(0.0, once_s), startup_s, pair_s)


def _spans_s(requests: pd.DataFrame, plan: dict[str, Any]) -> pd.Series:
    """From each sending to the next, so that the pauses between requests are in them (`results.history.pace`)."""
    life = ["startup", "startup_attempt", *(["role"] if plan["startup_mode"] == StartupMode.SEQUENTIAL else [])]
    following = requests.sort_values("send_ns").groupby(life).send_ns.shift(-1)
    return (following.fillna(requests.end_ns) - requests.send_ns) * 1e-9


def _lived(lives: Sequence[Life]) -> dict[int, float]:
    """Seconds from the beginning to the end of every startup that ended, both arms' servers together."""
    spans: dict[int, list[datetime]] = {}
    for life in lives:
        if life.end is not None and life.end.status is StartupStatus.COMPLETE:
            spans.setdefault(life.startup.startup, []).extend(
                (_utc(life.startup.created_utc), _utc(life.end.ended_utc))
            )
    return {startup: (max(times) - min(times)).total_seconds() for startup, times in spans.items()}


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text)


def again(reader: Reader, campaign_id: str, cost: Costs) -> str:
    """What the same plan takes another time."""
    plan = json.loads(reader.campaign(campaign_id).plan_json)
    startups, pairs = int(plan["startups"]), int(plan["pairs"])
    many = f"{counted(startups, 'startup')} of {counted(pairs, 'pair')}"
    return f"the same again: {many}, about {60 * cost.hours(startups, pairs):.1f} min\n"


def _row(name: str, found: Variances, proposal: Proposal | None) -> tuple[object, ...]:
    sds = (percent(found.within**0.5), percent(found.between**0.5))
    if proposal is None:
        return name, *sds, f"> {MAX_STARTUPS}", None, None, None, None
    widths = percent(proposal.expected), percent(proposal.assured)
    return name, *sds, proposal.startups, proposal.pairs, *widths, proposal.hours


def _conclusion(proposals: dict[str, Proposal | None], cost: Costs, wanted: float) -> str:
    costs_text = cost.words()
    met = [proposal for proposal in proposals.values() if proposal is not None]
    if len(met) < len(proposals):
        return f"a half width of {percent(wanted):.2f} % is out of reach for some fixtures ({costs_text})\n"
    startups, pairs = max(p.startups for p in met), max(p.pairs for p in met)
    hours = cost.hours(startups, pairs)
    return (
        f"campaign.startups={startups} campaign.pairs={pairs}: half width at most {percent(wanted):.2f} % on every "
        f"fixture with {100 * ASSURANCE:.0f} % assurance, about {hours:.2f} h ({costs_text})\n"
    )

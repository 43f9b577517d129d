"""A proposal for the next campaign from one that was measured: variances of its effects, and what its parts cost."""

from __future__ import annotations

import json
import math

import numpy as np

from campaigns.errors import NothingAdmissible, UsageError
from campaigns.judging.looks import Looks
from campaigns.judging.past import NO_PAST
from campaigns.judging.planning import (
    ASSURANCE,
    MAX_STARTUPS,
    Proposal,
    Variances,
    assured_sd,
    ending,
    propose,
    variances,
)
from campaigns.judging.statistics import by_startup, percent, startup_medians
from results.reading import frames
from results.reading.effects import mean_startups
from results.reading.groups import group_effects
from results.reading.looks import looks_of, setting_of
from results.reports.layout import table
from results.store.reader import Reader

_SPREADS = ("fixture", "sd in startups %", "sd between %")
_HEADER = (*_SPREADS, "startups", "pairs", "half width %", "80 % stay below %", "hours")


def forecast(reader: Reader, campaign_id: str, wanted: float) -> str:
    """A line per fixture, then the plan that serves them all. `wanted` is a half width as a logarithm."""
    found = {name: variances(by_startup(pairs)) for name, pairs in group_effects(reader, campaign_id).items()}
    known = {name: each for name, each in found.items() if each is not None}
    if not known:
        raise NothingAdmissible(
            f"campaign {campaign_id} has no two startups with two admissible pairs: measure an A/A campaign first"
        )
    startup_s, pair_s = costs(reader, campaign_id)
    proposals = {name: propose(each, startup_s, pair_s, wanted) for name, each in known.items()}
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
    return table(header, rows) + _conclusion(proposals, startup_s, pair_s, wanted)


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


def costs(reader: Reader, campaign_id: str) -> tuple[float, float]:
    """Seconds that a startup adds beside its pairs (start, warm-ups), and seconds of one pair of every fixture."""
    requests = frames.requests(reader, campaign_id)
    seconds = (requests.end_ns - requests.send_ns) * 1e-9
    measured, warm = requests.phase == "measure", requests.phase == "warmup"
    lives = [life.startup.ready_ns for life in reader.lives(campaign_id) if life.startup.ready_ns is not None]
    ready_s = sum(lives) / len(lives) * 1e-9 if lives else 0.0
    startups = max(1, requests.startup.nunique())
    per_arm = requests[measured].assign(s=seconds[measured]).groupby(["fixture", "seed", "role"]).s.mean()
    pair_s = float(per_arm.sum())
    if not pair_s:
        raise UsageError(f"campaign {campaign_id} has no measured request: there is nothing to plan from")
    return ready_s + float(seconds[warm].sum()) / startups, pair_s


def _row(name: str, found: Variances, proposal: Proposal | None) -> tuple[object, ...]:
    sds = (percent(found.within**0.5), percent(found.between**0.5))
    if proposal is None:
        return name, *sds, f"> {MAX_STARTUPS}", None, None, None, None
    widths = percent(proposal.expected), percent(proposal.assured)
    return name, *sds, proposal.startups, proposal.pairs, *widths, proposal.hours


def _conclusion(proposals: dict[str, Proposal | None], startup_s: float, pair_s: float, wanted: float) -> str:
    costs_text = f"a startup adds {startup_s:.1f} s, one pair of every fixture takes {pair_s:.1f} s"
    met = [proposal for proposal in proposals.values() if proposal is not None]
    if len(met) < len(proposals):
        return f"a half width of {percent(wanted):.2f} % is out of reach for some fixtures ({costs_text})\n"
    startups, pairs = max(p.startups for p in met), max(p.pairs for p in met)
    hours = startups * (startup_s + pairs * pair_s) / 3600
    return (
        f"campaign.startups={startups} campaign.pairs={pairs}: half width at most {percent(wanted):.2f} % on every "
        f"fixture with {100 * ASSURANCE:.0f} % assurance, about {hours:.2f} h ({costs_text})\n"
    )

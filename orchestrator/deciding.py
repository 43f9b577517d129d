"""Ending a campaign that is decided: the verdict is asked after each startup, and each look is recorded.

The answer is a function of the rows that are stored: whoever is killed and resumes gets the same one, looking twice at
the same startups is one look, and startups that ran beside the one that decided enter no verdict.
"""

from __future__ import annotations

from campaigns.plan import CampaignPlan, Stop
from campaigns.records import Look
from results.reading.summary import Summary, summarise
from results.store.reader import Reader
from results.store.writer import Store, utc_now


def decided(store: Store, campaign_id: str, plan: CampaignPlan) -> str:
    """Why no further startup is needed; empty where one is, and where the plan runs all of them."""
    if plan.stop is not Stop.DECIDED:
        return ""
    with Reader.open(store.path) as reader:
        summary = summarise(reader, campaign_id)
    record(store, summary)
    found = summary.judgement
    return f"{found.verdict} after {summary.n_seen} of at most {plan.startups} startups" if found.decided else ""


def record(store: Store, summary: Summary) -> None:
    """That its verdict was asked for, where there was one."""
    found = summary.judgement
    if found.interval is not None:
        decided = bool(found.look) and found.decided
        store.look(Look(summary.campaign.campaign_id, summary.n_seen, utc_now(), found.verdict.value, decided))

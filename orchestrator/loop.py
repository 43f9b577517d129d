"""The loop: plan minus recorded -> lease -> startup -> pairs -> store.

The table of contents of a campaign's measurement. `orchestrator.attempt` is one attempt of a startup,
`orchestrator.life` one server life; where a startup runs is Ray's business.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from campaigns.errors import ServerFailed
from campaigns.judging.verdicts import counted
from campaigns.order import blocks
from campaigns.plan import Block, CampaignPlan
from campaigns.records import CampaignStatus
from orchestrator.abreast import abreast
from orchestrator.attempt import attempt
from orchestrator.deciding import decided
from orchestrator.life import Desk
from orchestrator.startups.cluster import Cluster, connect
from orchestrator.startups.stand import starts_servers
from orchestrator.stopping import Stopping
from results.store.recorded import Recorded


def run(desk: Desk, folder: Path, stopping: Stopping) -> str:
    """Measure what is missing; says why the rest is not needed where the campaign was decided before its last startup.

    Raises Stopped where a person ended it, a CampaignError where something else did.
    """
    campaign_id = desk.campaign.campaign_id
    desk.store.status(campaign_id, CampaignStatus.RUNNING)
    recorded = desk.store.recorded(campaign_id)
    lost = _lost(desk.plan, recorded)  # in an earlier run: measured again, once
    wanted = [s for s in range(desk.plan.startups) if _missing(desk.plan, s, recorded, lost)]
    why = decided(desk.store, campaign_id, desk.plan)
    if wanted and not why:  # else no device is needed
        ray = desk.plan.lease.ray_address
        desk.doing(f"joining Ray at {ray}" if ray else "starting Ray: some ten seconds, more on a busy host")
        with connect(desk.plan.lease, stopping.halted) as cluster, desk.view.shown():

            def one(startup: int) -> None:
                own = replace(desk, stop_requested=partial(stopping.check, startup))
                _startup(own, cluster, folder, startup, lost)

            with closing(abreast(wanted, desk.plan.lease.parallel, one, stopping)) as done:
                for _ in done:  # each startup once it and all before it are done
                    if why := decided(desk.store, campaign_id, desk.plan):
                        break
    _require_answers(desk)
    return why if wanted else ""


def _startup(desk: Desk, cluster: Cluster, folder: Path, startup: int, lost: frozenset[str]) -> None:
    """All that is missing of one startup, in as many attempts as the plan allows."""
    desk.view.begin(startup)
    tries = desk.plan.server.retries + 1
    for trial in range(tries):
        recorded = desk.store.recorded(desk.campaign.campaign_id, startup)
        missing = _missing(desk.plan, startup, recorded, lost if trial == 0 else frozenset())
        number = recorded.next_startup_attempt(startup)
        death = attempt(desk, cluster, folder, startup, number, missing) if missing else ""
        if not death:
            return  # else the server died: what is still missing gets a new life
    raise ServerFailed(
        f"startup {startup + 1} died in {counted(tries, 'attempt')}, in the last one because: {death}"
        + (f"; the servers' logs are in {folder}" if starts_servers(desk.plan) else "")
    )


def _missing(plan: CampaignPlan, startup: int, recorded: Recorded, lost: frozenset[str]) -> list[Block]:
    return [b for b in blocks(plan, startup) if not recorded.holds(b) or _group(plan, b.fixture) in lost]


def _lost(plan: CampaignPlan, recorded: Recorded) -> frozenset[str]:
    """Fixtures (datasets of a corpus) all of whose recorded pairs failed: a campaign without them is not complete."""
    failed, answered = (
        {_group(plan, key.fixture) for key in keys} for keys in (recorded.failed, recorded.pairs - recorded.failed)
    )
    return frozenset(failed - answered)


def _require_answers(desk: Desk) -> None:
    campaign_id = desk.campaign.campaign_id
    if lost := _lost(desk.plan, desk.store.recorded(campaign_id)):
        raise ServerFailed(
            f"no pair of {', '.join(sorted(lost))} was answered, its report lists the failures: mend the server or the "
            f"prompts, then: campaign resume {campaign_id}"
        )


def _group(plan: CampaignPlan, fixture_id: str) -> str:
    return plan.fixture(fixture_id).dataset if plan.corpus else fixture_id

"""Who holds a campaign's claim: its driver on this host, a small actor on the host where a joined Ray placed it.

Both last from the campaign's first startup to its last. The actor's place is the campaign's, too, so that all its
startups run there. It ends with the driver, as everything does that a driver has in Ray, and so does the claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from campaigns.errors import CampaignError, WorldError
from campaigns.plan import CampaignPlan, LeasePlan
from orchestrator.hosts.claim import Claim, claim
from orchestrator.hosts.inventory import open_inventory
from orchestrator.hosts.lease import name_holder
from orchestrator.hosts.locks import LockFolder
from orchestrator.hosts.process import die_with_parent
from orchestrator.startups.cluster import Cluster, Placement, place
from orchestrator.startups.stand import starts_servers

_ANSWER_S = 60.0  # beyond what a call may take by itself


class ClaimActor:
    """Holds a claim on its host for as long as it lives."""

    def __init__(self) -> None:
        die_with_parent()
        self._claim: Claim | None = None

    def take(self, plan: LeasePlan, campaign: str, wait_s: float, idle: bool) -> tuple[str, ...]:
        self._claim = _take(plan, campaign, time.monotonic() + wait_s, idle)
        return self._claim.uuids

    def holds(self) -> bool:
        return self._claim is not None


@dataclass(frozen=True)
class RemoteClaim:
    placement: Placement  # shared by all startups of the campaign
    actor: Any
    uuids: tuple[str, ...]

    def stands(self) -> bool:
        """False where the actor or its host is gone, and the claim with it."""
        try:
            return bool(_ask(self.actor.holds.remote(), _ANSWER_S))
        except WorldError:
            return False

    def release(self) -> None:
        import ray
        from ray.exceptions import RayError

        for step in (lambda: ray.kill(self.actor), replace(self.placement, shared=False).remove):
            with suppress(RayError, ConnectionError, ValueError):  # Ray itself may be gone
                step()


def claimed(
    cluster: Cluster, plan: CampaignPlan, campaign_id: str, deadline: float, on_wait: Callable[[str], None]
) -> Claim | RemoteClaim:
    """The devices of this campaign: claimed at its first startup, the same ones from then on while the claim stands."""
    held = cluster.claims.get(plan.lease)
    if isinstance(held, RemoteClaim) and not held.stands():
        held.release()
        held = None
    if held is None:
        campaign, idle = f"campaign {campaign_id}", starts_servers(plan)
        if cluster.private:
            held = _take(plan.lease, campaign, deadline, idle, on_wait)
        else:
            held = _remote(cluster, plan.lease, campaign, deadline, idle)
        cluster.claims[plan.lease] = held
    return held


def _take(
    plan: LeasePlan, campaign: str, deadline: float, idle: bool, on_wait: Callable[[str], None] = lambda why: None
) -> Claim:
    """On this host."""
    folder = LockFolder(plan.lock_dir)
    with open_inventory(plan.inventory) as inventory:
        return claim(folder, inventory, plan, name_holder(campaign), deadline, idle=idle, on_wait=on_wait)


def _remote(cluster: Cluster, plan: LeasePlan, campaign: str, deadline: float, idle: bool) -> RemoteClaim:
    """On the host that Ray chooses."""
    import ray

    placement = replace(place(cluster, plan, (), deadline), shared=True)
    options = {"num_cpus": 0, "scheduling_strategy": placement.strategy, "max_restarts": 0}
    held = RemoteClaim(placement, ray.remote(ClaimActor).options(**options).remote(), ())
    wait_s = max(0.0, deadline - time.monotonic())
    try:
        return replace(held, uuids=_ask(held.actor.take.remote(plan, campaign, wait_s, idle), wait_s + _ANSWER_S))
    except BaseException:
        held.release()
        raise


def _ask(answer: Any, timeout_s: float) -> Any:
    """What the actor raises crosses as itself; an actor that is lost is a WorldError."""
    import ray
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError

    try:
        return ray.get(answer, timeout=timeout_s)
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, CampaignError) else error from None
    except (GetTimeoutError, RayError, ConnectionError) as error:
        raise WorldError(
            f"the devices' claim was lost on the joined Ray ({type(error).__name__}): resume later"
        ) from error

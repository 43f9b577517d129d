"""A campaign's claims on one host of a joined Ray: a small actor there keeps them, and the driver has a hand on it.

One actor for all of them, since each is a process of its own, with the threads and the imports of every process of Ray.
It is lost with its host, and then all its claims are; it ends with the driver, as everything does that a driver has in
Ray. A startup that runs has locks of its own (orchestrator.hosts.lease).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from campaigns.errors import CampaignError, HelperLost
from campaigns.plan import CampaignPlan, LeasePlan
from orchestrator.hosts.claim import Claim, claim
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import name_holder
from orchestrator.hosts.locks import LockFolder
from orchestrator.hosts.process import die_with_parent
from orchestrator.servers import weights
from orchestrator.startups.cluster import Cluster, Placement, host_of
from orchestrator.startups.ground import Ground
from orchestrator.startups.head import first_line
from orchestrator.startups.pulse import Heard

_ANSWER_S = 60.0  # beyond what a call may take by itself
_LOOK_S = 1.0  # between two looks at what else may have ended


class ClaimActor(Heard):
    """Keeps claims on its host for as long as it lives. `path` is the PATH that servers will have."""

    def __init__(self, plan: CampaignPlan, campaign: str, idle: bool, path: str | None) -> None:
        die_with_parent()
        super().__init__()
        self._plan, self._campaign, self._idle, self._path = plan, campaign, idle, path
        self._claims: dict[int, Claim] = {}
        self._looking = threading.Lock()
        self._found: tuple[str, Ground] | None = None

    def take(self, number: int, wait_s: float) -> tuple[tuple[str, ...], Ground, str]:
        """UUIDs, what this host has, and where it has the model."""
        model, ground = self._look()
        made = self._claims[number] = take(self._plan.lease, self._campaign, time.monotonic() + wait_s, self._idle)
        return made.uuids, replace(ground, device_names=tuple(device.name for device in made.devices)), model

    def holds(self, number: int) -> bool:
        return number in self._claims

    def release(self, number: int) -> None:
        if (made := self._claims.pop(number, None)) is not None:
            made.release()

    def _look(self) -> tuple[str, Ground]:
        """Once: weights are large, and each is hashed."""
        with self._looking:
            if self._found is None:
                model = weights.found(self._plan.server, socket.gethostname())
                self._found = model, Ground.here((), self._plan, self._path)
            return self._found


@dataclass
class Keeper:
    """The driver's hand on the actor of one host. `host` is what Ray calls the node."""

    actor: Any
    node_id: str
    host: str
    lost: bool = False  # it has not answered: its claims ended with it, or will

    @classmethod
    def start(cls, node_id: str, plan: CampaignPlan, campaign: str, idle: bool, path: str | None) -> Keeper:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        threads = plan.lease.per_host + 2  # each claim may wait for long; is it there, and the driver's beat, may not
        options = {"num_cpus": 0, "scheduling_strategy": there, "max_restarts": 0, "max_concurrency": threads}
        actor = ray.remote(ClaimActor).options(**options).remote(plan, campaign, idle, path)
        return cls(actor, node_id, host_of(node_id))

    def ask(self, method: str, *args: Any, timeout_s: float = _ANSWER_S, cluster: Cluster | None = None) -> Any:
        """What the actor raises crosses as itself; an actor that is lost is a HelperLost, unless all of Ray is."""
        import ray
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError

        deadline = time.monotonic() + timeout_s
        try:
            answer = getattr(self.actor, method).remote(*args)
            while cluster is not None and time.monotonic() < deadline - _LOOK_S:
                with suppress(GetTimeoutError):
                    return ray.get(answer, timeout=_LOOK_S)
                cluster.require_alive()
            return ray.get(answer, timeout=max(0.0, deadline - time.monotonic()))
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, CampaignError) else error from None
        except (GetTimeoutError, RayError, ConnectionError) as error:
            self.lost = True
            raise HelperLost(f"the claim of devices on {self.host} was lost: {first_line(error)}") from error

    def end(self) -> None:
        import ray

        with _gone():
            ray.kill(self.actor)


@dataclass(frozen=True)
class RemoteClaim:
    placement: Placement  # shared by all startups that use the claim
    keeper: Keeper
    number: int  # the keeper's word for it
    uuids: tuple[str, ...] = ()
    model: str = ""  # as its host has it

    @property
    def node_id(self) -> str:
        return self.keeper.node_id

    @property
    def host(self) -> str:
        return self.keeper.host

    def stands(self) -> bool:
        """False where the keeper or its host is gone, and the claim with it."""
        try:
            return not self.keeper.lost and bool(self.keeper.ask("holds", self.number))
        except HelperLost:
            return False

    def release(self) -> None:
        with _gone():
            self.keeper.actor.release.remote(self.number)  # nobody waits for the answer
        with _gone():
            replace(self.placement, shared=False).remove()


def take(plan: LeasePlan, campaign: str, deadline: float, idle: bool) -> Claim:
    """On this host."""
    folder = LockFolder(plan.lock_dir)
    with open_inventory(plan.inventory) as inventory:
        return claim(folder, inventory, plan, name_holder(campaign), deadline, idle=idle)


@contextmanager
def _gone() -> Iterator[None]:
    """Around what Ray itself may be gone for."""
    from ray.exceptions import RayError

    with suppress(RayError, ConnectionError, ValueError):
        yield

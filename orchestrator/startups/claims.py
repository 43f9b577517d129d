"""What a campaign's startups run on: claims, each of the devices of one startup, kept from the first to the last.

A campaign has as many as it runs startups at once, and each startup takes a free one. A claim is held by the driver on
this host, by a small actor on the host where a joined Ray placed it; the actor's place is the campaign's, too. It ends
with the driver, as everything does that a driver has in Ray, and so does the claim.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from campaigns.errors import CampaignError, HelperLost, IdentityMismatch, LeaseTimeout, NoDevice
from campaigns.plan import CampaignPlan, LeasePlan
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.trees import CONTROL_PLANE, DATA_PLANE, tree_sha256
from orchestrator.hosts.claim import Claim, claim
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import name_holder
from orchestrator.hosts.locks import LockFolder
from orchestrator.hosts.process import die_with_parent
from orchestrator.hosts.software import versions
from orchestrator.servers import commanded, weights
from orchestrator.startups.cluster import Cluster, Placement, host_of, place
from orchestrator.startups.head import first_line
from orchestrator.startups.pulse import Heard
from orchestrator.startups.stand import starts_servers

_ANSWER_S = 60.0  # beyond what a call may take by itself
_HASH_S = 900.0  # for code to arrive and large weights to be hashed
_SHOWN = 12  # characters of a hash
_LOOK_S = 1.0  # between two looks at what else may have ended
_TRY_S = 10.0  # between two tries to get one more claim, where the campaign has some


@dataclass(frozen=True)
class Ground:
    """What all startups of a campaign must share, as a host has it."""

    host: str
    device_names: tuple[str, ...]
    code_sha256: str
    versions: Mapping[str, str]
    files: Mapping[str, str]  # of a server that a command line starts, by content

    @classmethod
    def here(cls, device_names: tuple[str, ...], plan: CampaignPlan, path: str | None) -> Ground:
        """`path` is the PATH that servers will have."""
        code = tree_sha256(ROOT, (*CONTROL_PLANE, *DATA_PLANE))
        files = commanded.named(commanded.files_of(plan, path))
        files |= {f"tree {arm.tree}": commanded.tree_of(arm) for arm in (plan.control, plan.candidate) if arm.tree}
        return cls(socket.gethostname(), device_names, code, versions(), files)

    def require_like(self, other: Ground) -> None:
        """IdentityMismatch that names both hosts where startups here would not be those of there."""
        if self.code_sha256 != other.code_sha256:
            raise IdentityMismatch(
                f"{self.host} has other code ({self.code_sha256[:12]}) than {other.host} ({other.code_sha256[:12]}), "
                "though it was sent there: take one of them out of the cluster"
            )
        self._require_same("", self.versions, other, other.versions)
        self._require_same("sha256 of ", self.files, other, other.files)
        if self.device_names != other.device_names:
            theirs, ours = (", ".join(names) for names in (other.device_names, self.device_names))
            raise IdentityMismatch(
                f"{self.host} has {ours} and {other.host} has {theirs}: a campaign is of one kind of device; take one "
                "of them out of the cluster, or name devices by lease.uuids"
            )

    def _require_same(self, what: str, mine: Mapping[str, str], other: Ground, its: Mapping[str, str]) -> None:
        for name in sorted(mine.keys() | its.keys()):
            ours, theirs = (each.get(name, "none")[:_SHOWN] for each in (mine, its))
            if mine.get(name) != its.get(name):
                raise IdentityMismatch(
                    f"{self.host} has {what}{name.removeprefix('server.file.')} {ours} and {other.host} has {theirs}: "
                    "bring both to the same, or take one of them out of the cluster"
                )


class ClaimActor(Heard):
    """Holds a claim on its host for as long as it lives."""

    def __init__(self) -> None:
        die_with_parent()
        super().__init__()
        self._claim: Claim | None = None

    def take(
        self, plan: CampaignPlan, campaign: str, wait_s: float, idle: bool, path: str | None, node_id: str
    ) -> tuple[tuple[str, ...], Ground, str]:
        """UUIDs, what this host has, and where it has the model."""
        require_node(node_id)
        model = weights.found(plan.server, socket.gethostname())
        self._claim = _take(plan.lease, campaign, time.monotonic() + wait_s, idle)
        names = tuple(device.name for device in self._claim.devices)
        return self._claim.uuids, Ground.here(names, plan, path), model

    def holds(self) -> bool:
        return self._claim is not None


@dataclass(frozen=True)
class RemoteClaim:
    placement: Placement  # shared by all startups that use the claim
    actor: Any
    node_id: str
    host: str  # as Ray calls the node
    uuids: tuple[str, ...] = ()
    model: str = ""  # as its host has it

    def stands(self) -> bool:
        """False where the actor or its host is gone, and the claim with it."""
        try:
            return bool(self.ask(self.actor.holds.remote(), _ANSWER_S))
        except HelperLost:
            return False

    def ask(self, answer: Any, timeout_s: float, cluster: Cluster | None = None) -> Any:
        """What the actor raises crosses as itself; an actor that is lost is a HelperLost, unless all of Ray is."""
        import ray
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError

        deadline = time.monotonic() + timeout_s
        try:
            while cluster is not None and time.monotonic() < deadline - _LOOK_S:
                with suppress(GetTimeoutError):
                    return ray.get(answer, timeout=_LOOK_S)
                cluster.require_alive()
            return ray.get(answer, timeout=max(0.0, deadline - time.monotonic()))
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, CampaignError) else error from None
        except (GetTimeoutError, RayError, ConnectionError) as error:
            raise HelperLost(f"the claim of devices on {self.host} was lost: {first_line(error)}") from error

    def release(self) -> None:
        import ray
        from ray.exceptions import RayError

        for step in (lambda: ray.kill(self.actor), replace(self.placement, shared=False).remove):
            with suppress(RayError, ConnectionError, ValueError):  # Ray itself may be gone
                step()


Held = Claim | RemoteClaim


class Claims:
    """Of one campaign in one cluster: at most `lease.parallel`, at most `lease.per_host` of them on one host.

    Used by startups in threads of their own.
    """

    def __init__(self, cluster: Cluster, plan: CampaignPlan, campaign_id: str) -> None:
        self.cluster, self.plan, self._campaign = cluster, plan.lease, f"campaign {campaign_id}"
        self._whole, self._path = plan, cluster.environment.get("PATH")
        self._idle = starts_servers(plan)
        self._free: list[Held] = []
        self._used: list[Held] = []
        self._placed: Counter[str] = Counter()  # claims by the node that has them, those too that are just being made
        self._refused: set[str] = set()  # nodes that cannot serve this campaign
        self._changed = threading.Condition()
        self._placing = threading.Lock()
        self._ground: Ground | None = None  # of the first claim; all others must be like it

    def take(self, deadline: float, on_wait: Callable[[str], None]) -> Held:
        """A claim that stands: one that an earlier startup has left, or one more. LeaseTimeout, NoDevice: the campaign
        has none and gets none. Where it has some, another startup's is waited for. HelperLost: its host was lost while
        it was made.
        """
        told = False
        while True:
            if (found := self._left() or self._one_more(deadline, on_wait)) is not None:
                return self._use(found)
            if not told:
                on_wait(f"a startup waits for a place: there are fewer than lease.parallel={self.plan.parallel} now")
            told = True
            self._await_another()

    def give_back(self, held: Held) -> None:
        with self._changed:
            self._used.remove(held)
            self._free.append(held)
            self._changed.notify()

    def give_up_host(self, held: Held) -> None:
        """Instead of giving it back: no startup of this campaign is to run there again."""
        if not isinstance(held, RemoteClaim):
            self.give_back(held)
            return
        with self._changed:
            self._used.remove(held)
            self._refused.add(held.node_id)
            self._changed.notify()
        self._give_up(held)

    def release(self) -> None:
        for held in (*self._free, *self._used):
            if isinstance(held, Claim) or not self.cluster.gone():  # actors end by themselves where nobody is heard
                held.release()

    def _left(self) -> Held | None:
        """A claim of an earlier startup; one whose host is gone is given up."""
        while True:
            with self._changed:
                if not self._free:
                    return None
                held = self._free.pop(0)
            if not isinstance(held, RemoteClaim) or held.stands():
                return held
            self._give_up(held)

    def _others(self) -> bool:
        """Whether another startup has a claim that may be waited for."""
        return bool(self._used or self._free or self._placed.total())

    def _use(self, held: Held) -> Held:
        with self._changed:
            self._used.append(held)
        return held

    def _await_another(self) -> None:
        until = time.monotonic() + _TRY_S
        with self._changed:
            while not self._free and self._others() and time.monotonic() < until:
                self._changed.wait(_LOOK_S)
                self.cluster.require_alive()

    def _one_more(self, deadline: float, on_wait: Callable[[str], None]) -> Held | None:
        """None where there is none now, and another startup's may be waited for; that is asked again and again, for
        startups that begin together all find that nobody has one.
        """
        if not self.cluster.private:
            return self._remote(deadline)
        told = False
        while True:
            self.cluster.require_alive()
            try:
                return _take(self.plan, self._campaign, min(deadline, time.monotonic() + _LOOK_S), self._idle)
            except (LeaseTimeout, NoDevice) as error:
                if self._others():
                    return None
                if isinstance(error, NoDevice) or time.monotonic() >= deadline:
                    raise
                if not told:
                    on_wait(str(error))
                told = True

    def _remote(self, deadline: float) -> RemoteClaim | None:
        """On the host that Ray chooses among those that have room for one more of ours."""
        import ray

        with self._placing:  # one after the other: where the next may go depends on where the last one went
            others = self._others()
            deadline = time.monotonic() if others else deadline
            try:
                placement, node_id = self._place(deadline)
            except (LeaseTimeout, NoDevice):
                if others:
                    return None
                raise
        options = {"num_cpus": 0, "scheduling_strategy": placement.strategy, "max_restarts": 0, "max_concurrency": 2}
        held = RemoteClaim(placement, ray.remote(ClaimActor).options(**options).remote(), node_id, host_of(node_id))
        self.cluster.beats.add(held.actor)
        wait_s = max(0.0, deadline - time.monotonic())
        try:
            answer = held.actor.take.remote(self._whole, self._campaign, wait_s, self._idle, self._path, node_id)
            uuids, ground, model = held.ask(answer, wait_s + _HASH_S, self.cluster)
            self._require_like(ground)
            return replace(held, uuids=uuids, model=model)
        except BaseException as error:
            self._give_up(held)
            if isinstance(error, LeaseTimeout | NoDevice) and others:
                return None
            raise

    def _require_like(self, ground: Ground) -> None:
        with self._changed:
            if self._ground is None:
                ours = Ground.here(ground.device_names, self._whole, self._path)
                ground.require_like(replace(ours, host="this driver's host"))
                self._ground = ground
            ground.require_like(self._ground)

    def _give_up(self, held: RemoteClaim) -> None:
        with self._changed:
            self._placed[held.node_id] -= 1
            self._changed.notify()
        self.cluster.beats.drop(held.actor)
        held.release()

    def _place(self, deadline: float) -> tuple[Placement, str]:
        full = [node for node, claims in self._placed.items() if claims >= self.plan.per_host]
        placement = place(self.cluster, self.plan, (), deadline, [*{*full, *self._refused}])
        node_id = placement.node_id
        if not node_id:
            placement.remove()
            raise HelperLost("the host where devices were to be claimed was lost")
        with self._changed:
            self._placed[node_id] += 1
        return replace(placement, shared=True), node_id


def claims_of(cluster: Cluster, plan: CampaignPlan, campaign_id: str) -> Claims:
    """The campaign's claims: made at its first startup, kept until the cluster is left."""
    found: Claims = cluster.claims.setdefault(plan.lease, Claims(cluster, plan, campaign_id))
    return found


def _take(plan: LeasePlan, campaign: str, deadline: float, idle: bool) -> Claim:
    """On this host."""
    folder = LockFolder(plan.lock_dir)
    with open_inventory(plan.inventory) as inventory:
        return claim(folder, inventory, plan, name_holder(campaign), deadline, idle=idle)


def require_node(node_id: str) -> None:
    """Of an actor: HelperLost where it is elsewhere. Ray moves the place of a lost host, and nobody asked this one."""
    import ray

    if node_id and node_id != ray.get_runtime_context().get_node_id():
        raise HelperLost(f"the host where a startup had its place was lost; Ray moved it to {socket.gethostname()}")

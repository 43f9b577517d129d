"""What a campaign's startups run on: claims, each of the devices of one startup, kept from the first to the last.

A campaign has as many as it runs startups at once, and each startup takes a free one. A claim is held by the driver on
this host, by a small actor on the host where a joined Ray placed it (orchestrator.startups.keeper); its place is the
campaign's, too. All of it ends with the driver.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from campaigns.errors import HelperLost, LeaseTimeout, NoDevice
from campaigns.plan import CampaignPlan
from orchestrator.hosts.claim import Claim
from orchestrator.startups.cluster import Cluster, Placement, place
from orchestrator.startups.ground import Ground
from orchestrator.startups.keeper import Keeper, RemoteClaim, take
from orchestrator.startups.stand import starts_servers

_HASH_S = 900.0  # for code to arrive and large weights to be hashed
_LOOK_S = 1.0  # between two looks at what else may have ended
_TRY_S = 10.0  # between two tries to get one more claim, where the campaign has some

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
        self._keepers: dict[str, Keeper] = {}  # by the node
        self._numbers = itertools.count()
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
        if not self.cluster.gone():
            for keeper in self._keepers.values():
                keeper.end()

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
                return take(self.plan, self._campaign, min(deadline, time.monotonic() + _LOOK_S), self._idle)
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
        with self._placing:  # one after the other: where the next may go depends on where the last one went
            others = self._others()
            deadline = time.monotonic() if others else deadline
            try:
                placement, node_id = self._place(deadline)
            except (LeaseTimeout, NoDevice):
                if others:
                    return None
                raise
            held = RemoteClaim(placement, self._keeper(node_id), next(self._numbers))
        wait_s = max(0.0, deadline - time.monotonic())
        try:
            answer = held.keeper.ask("take", held.number, wait_s, timeout_s=wait_s + _HASH_S, cluster=self.cluster)
            uuids, ground, model = answer
            self._require_like(ground)
            return replace(held, uuids=uuids, model=model)
        except BaseException as error:
            self._give_up(held)
            if isinstance(error, LeaseTimeout | NoDevice) and others:
                return None
            raise

    def _keeper(self, node_id: str) -> Keeper:
        found = self._keepers.get(node_id)
        if found is None or found.lost:
            found = Keeper.start(node_id, self._whole, self._campaign, self._idle, self._path)
            self._keepers[node_id] = found
            self.cluster.beats.add(found.actor)
        return found

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
        if held.keeper.lost:
            self.cluster.beats.drop(held.keeper.actor)
            held.keeper.end()
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

"""The devices of every node of a cluster, as a task on that node sees them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from campaigns.errors import WorldError
from campaigns.plan import LeasePlan
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import state
from orchestrator.hosts.locks import LockFolder
from orchestrator.startups.cluster import connect
from orchestrator.startups.head import first_line

_ANSWER_S = 60.0


@dataclass(frozen=True)
class Row:
    index: int
    uuid: str
    name: str
    state: str  # free, held by whom, or what is in the way


@dataclass(frozen=True)
class Node:
    """`fault` says why its devices are not known; then there are none."""

    address: str
    host: str
    num_cpus: int
    devices: tuple[Row, ...]
    fault: str = ""


def nodes(plan: LeasePlan) -> list[Node]:
    """Every living node of the cluster at `plan.ray_address`, in the order of their addresses."""
    with connect(plan) as cluster:
        cluster.require_alive()
        return list(_ask(plan))


def _ask(plan: LeasePlan) -> Iterator[Node]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    asked = []
    for node in sorted(alive, key=lambda node: str(node["NodeManagerAddress"])):
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ray.remote(look).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        asked.append((node, task.remote(plan.inventory, plan.lock_dir)))
    for node, answer in asked:
        address = str(node["NodeManagerAddress"])
        try:
            host, num_cpus, rows = ray.get(answer, timeout=_ANSWER_S)
            yield Node(address, host, num_cpus, rows)
        except RayError as error:
            cause = getattr(error, "cause", None)
            fault = str(cause) if isinstance(cause, WorldError) else first_line(error)
            yield Node(address, str(node["NodeManagerHostname"]), 0, (), fault)


def look(inventory: str, lock_dir: str) -> tuple[str, int, tuple[Row, ...]]:
    """On the node itself."""
    folder = LockFolder(lock_dir)
    with open_inventory(inventory) as found:
        rows = [Row(d.index, d.uuid, d.name, state(folder, found, d)) for d in found.devices()]
    return socket.gethostname(), len(os.sched_getaffinity(0)), tuple(rows)

"""Which CPUs of this host a startup gets: some for its servers, one for its client.

A startup that has the host to itself has all of them. Where startups run side by side (lease.per_host), every device of
the host owns an equal part of the CPUs near it, whole cores where they divide so, and a startup gets those of its
devices: so the parts of any two startups are disjoint, whoever started them. Knows nothing of servers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.hosts.devices.device import Inventory

_MANY = 4  # from here on the client has a CPU to itself
_TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Cpus:
    """Empty where all CPUs of the host are meant."""

    servers: tuple[int, ...] = ()
    client: tuple[int, ...] = ()


def cpus_of(inventory: Inventory, uuids: Sequence[str], per_host: int) -> Cpus:
    """Of a startup on these devices. A host with few CPUs shares them: a server loses more by it than others gain."""
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    if per_host == 1:
        return Cpus(allowed[:-1], allowed[-1:]) if len(allowed) >= _MANY else Cpus()
    parts = shares({device.uuid: inventory.near(device.uuid) for device in inventory.devices()}, _by_core(allowed))
    own = [cpu for uuid in uuids for cpu in parts[uuid]]
    if any(len(part) < 2 for part in parts.values()):
        return Cpus()
    return Cpus(tuple(sorted(own[:-1])), (own[-1],))


def shares(near: dict[str, frozenset[int]], cpus: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Device -> its part of `cpus`, which neighbours in the list share cores. Where the machine does not say what is
    near each device, or says so in sets that overlap, nearness is left out of account.
    """
    groups = {of & set(cpus) for of in near.values()}
    if any(not group for group in groups) or sum(map(len, groups)) > len(set[int]().union(*groups)):
        near = dict.fromkeys(near, frozenset(cpus))
        groups = {frozenset(cpus)}
    found: dict[str, tuple[int, ...]] = {}
    for group in groups:
        mine, theirs = [d for d, of in near.items() if of & set(cpus) == group], [c for c in cpus if c in group]
        for number, device in enumerate(mine):
            ends = (len(theirs) * number // len(mine), len(theirs) * (number + 1) // len(mine))
            found[device] = tuple(theirs[slice(*ends)])
    return found


def _by_core(cpus: Sequence[int]) -> list[int]:
    """Threads of one core beside each other; in the order of their numbers where the kernel does not tell."""
    return sorted(cpus, key=lambda cpu: (_told(cpu, "physical_package_id"), _told(cpu, "core_id"), cpu))


def _told(cpu: int, name: str) -> int:
    try:
        return int((_TOPOLOGY / f"cpu{cpu}" / "topology" / name).read_text())
    except (OSError, ValueError):
        return 0

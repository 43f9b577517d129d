"""Which CPUs a startup gets, alone and beside others."""

from __future__ import annotations

import os
import random

import pytest

from orchestrator.hosts import cpus
from orchestrator.hosts.cpus import Cpus, cpus_of, shares
from orchestrator.hosts.devices.inventory import open_inventory


@pytest.mark.parametrize(
    ("allowed", "servers", "client"),
    [({0}, (), ()), ({0, 1, 2}, (), ()), ({2, 4, 6, 8}, (2, 4, 6), (8,))],
)
def test_a_client_has_a_cpu_to_itself_where_there_are_four(
    monkeypatch: pytest.MonkeyPatch, allowed: set[int], servers: tuple[int, ...], client: tuple[int, ...]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed)
    assert cpus_of(open_inventory("simulated:eight"), (), 1) == Cpus(servers, client)


def test_two_sockets_with_four_gpus_each() -> None:
    """Each GPU has seven whole cores of its own socket: threads n and n + 56 are one core."""
    numa = [frozenset((*range(28 * s, 28 * s + 28), *range(56 + 28 * s, 84 + 28 * s))) for s in (0, 1)]
    order = [cpu for core in range(56) for cpu in (core, core + 56)]
    near = {f"GPU-{n}": numa[n // 4] for n in range(8)}
    found = shares(near, order)
    assert all(set(found[gpu]) <= near[gpu] and len(found[gpu]) == 14 for gpu in near)
    assert all({cpu % 56 for cpu in part} == {cpu % 56 for cpu in part if cpu < 56} for part in found.values())
    assert sorted(cpu for part in found.values() for cpu in part) == list(range(112))


@pytest.mark.parametrize("seed", range(20))
def test_parts_never_overlap_whatever_the_machine_says(seed: int) -> None:
    chance = random.Random(seed)
    cpus = list(range(chance.randint(1, 64)))
    sets = [frozenset(chance.sample(cpus, chance.randint(0, len(cpus)))) for _ in range(3)]
    found = shares({f"GPU-{n}": chance.choice(sets) for n in range(chance.randint(1, 9))}, cpus)
    given = [cpu for part in found.values() for cpu in part]
    assert len(given) == len(set(given)) and set(given) <= set(cpus)


def test_startups_side_by_side_are_disjoint_and_a_small_host_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = open_inventory("simulated:eight")
    uuids = [device.uuid for device in inventory.devices()]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(32)))
    monkeypatch.setattr(cpus, "_told", lambda cpu, name: 0)
    pairs = [cpus_of(inventory, uuids[n : n + 2], 4) for n in range(0, 8, 2)]
    assert pairs[0] == Cpus(tuple(range(7)), (7,))
    assert len({cpu for pair in pairs for cpu in (*pair.servers, *pair.client)}) == 32
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert cpus_of(inventory, uuids[:1], 4) == Cpus()  # one CPU would have to be both server's and client's

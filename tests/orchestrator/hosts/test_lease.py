"""Leases: exclusive, proven idle before and after, marked when they do not come back clean."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import LeaseTimeout, NoDevice
from campaigns.plan import LeasePlan
from campaigns.records import Process
from orchestrator.hosts import lease as lease_module
from orchestrator.hosts.claim import claim, pick, pick_patiently
from orchestrator.hosts.devices.cpu import CpuInventory
from orchestrator.hosts.devices.device import Device, Inventory
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import Lease, acquire, name_holder
from orchestrator.hosts.locks import LockFolder, close_all
from orchestrator.hosts.process import identify

GIB = 1 << 30


class Host:
    """A simulated host whose state a test can change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = LockFolder(str(path / "locks"))
        self.set()
        self.inventory: Inventory = open_inventory(f"simulated:{path / 'host.json'}")

    def set(self, **state: Any) -> None:
        new = self.path / "new"
        new.write_text(json.dumps({"order": [2, 0, 1], **state}))
        new.replace(self.path / "host.json")

    def uuid(self, number: int) -> str:
        return next(d.uuid for d in self.inventory.devices() if d.uuid.endswith(f"{number:012d}"))

    def lease(self, plan: LeasePlan) -> Lease:
        return self.acquire(pick(self.folder, self.inventory, plan, idle=True))

    def acquire(self, devices: Sequence[Device], wait_s: float = 0.0) -> Lease:
        return acquire(self.folder, self.inventory, devices, name_holder("campaign c0ffee"), wait_s, idle=True)

    def release(self, held: Lease, processes: tuple[Process, ...] = ()) -> tuple[str, ...]:
        return held.release(self.folder, self.inventory, processes)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(lease_module, "RETURN_S", 0.3)
    return Host(tmp_path)


@pytest.fixture
def sleeper() -> Iterator[Process]:
    child = subprocess.Popen(["sleep", "60"])
    process = identify(child.pid, "server")
    assert process is not None
    yield process
    child.kill()
    child.wait()


def test_by_count_the_first_free_devices(host: Host) -> None:
    first = host.lease(LeasePlan(count=1))
    assert first.uuids == (host.uuid(2),)  # NVML's index 0
    both = host.lease(LeasePlan(count=2))
    assert both.uuids == (host.uuid(0), host.uuid(1))
    with pytest.raises(LeaseTimeout, match=r"is held by campaign c0ffee of .*lease.wait_s=0"):
        host.lease(LeasePlan(count=1))
    assert host.release(first) == () and host.release(both) == ()
    assert host.lease(LeasePlan(count=3)).devices == host.inventory.devices()


def test_by_index_and_uuid(host: Host) -> None:
    held = host.lease(LeasePlan(indices=(2, 0)))
    assert held.uuids == (host.uuid(1), host.uuid(2))
    with pytest.raises(LeaseTimeout, match=f"{host.uuid(1)} is held by campaign c0ffee"):
        host.lease(LeasePlan(uuids=(host.uuid(0), host.uuid(1))))
    with pytest.raises(LeaseTimeout, match=f"{host.uuid(1)} is held by campaign c0ffee"):
        host.acquire([device for device in host.inventory.devices() if device.uuid != host.uuid(2)])
    assert not host.folder.is_held(host.uuid(0))  # all or none
    close_all(held.fds)


def test_more_than_there_are(host: Host) -> None:
    with pytest.raises(NoDevice, match=r"lease.count=4, but this host has 3: 0: GPU-"):
        host.lease(LeasePlan(count=4))


def test_waiting_ends_when_the_holder_leaves(host: Host) -> None:
    held = host.lease(LeasePlan(indices=(0,)))
    left = threading.Event()

    def leave() -> None:
        left.set()
        host.release(held)

    threading.Timer(0.5, leave).start()
    taken = host.acquire(held.devices, wait_s=200.0)
    assert left.is_set()
    close_all(taken.fds)


def test_picking_waits_only_while_it_can_help(host: Host) -> None:
    held = host.lease(LeasePlan(count=3))
    threading.Timer(0.6, host.release, [held]).start()
    told: list[str] = []
    deadline = time.monotonic() + 200.0
    assert pick_patiently(host.folder, host.inventory, LeasePlan(count=2), deadline, idle=True, on_wait=told.append)
    assert len(told) == 1 and "is held by campaign c0ffee" in told[0]
    host.set(processes={0: [99], 1: [99], 2: [99]})
    before = time.monotonic()
    with pytest.raises(NoDevice, match="only 0 of 3 devices can be had"):
        pick_patiently(host.folder, host.inventory, LeasePlan(count=1), time.monotonic() + 200.0, idle=True)
    assert time.monotonic() - before < 60.0


def test_a_foreign_process_keeps_a_lease_away(host: Host) -> None:
    host.set(processes={2: [99]})
    assert host.lease(LeasePlan(count=1)).uuids == (host.uuid(0),)  # count steps over it
    with pytest.raises(NoDevice, match=r"Device 0 \(.*\) is used by process 99. End that"):
        host.lease(LeasePlan(indices=(0,)))
    assert not host.folder.is_held(host.uuid(2))


def test_stuck_memory_keeps_a_lease_away(host: Host) -> None:
    host.set(used_bytes={2: 9 * GIB})
    with pytest.raises(NoDevice, match="has 9216 MiB in use by nobody visible"):
        host.lease(LeasePlan(indices=(0,)))


def test_memory_that_stays_marks_the_device_until_it_is_free(host: Host) -> None:
    held = host.lease(LeasePlan(indices=(0,)))
    host.set(used_bytes={2: GIB})
    [fault] = host.release(held)
    assert "1024 MiB in use" in fault
    assert not host.folder.is_held(host.uuid(2))
    mark = host.folder.mark(host.uuid(2))
    assert mark is not None and mark.reason == fault and "campaign c0ffee" in mark.holder
    with pytest.raises(NoDevice, match=r"1024 MiB in use .*; it is marked since .*1024 MiB"):
        host.lease(LeasePlan(indices=(0,)))
    assert host.lease(LeasePlan(count=1)).uuids == (host.uuid(0),)
    host.set()
    close_all(host.lease(LeasePlan(indices=(0,))).fds)
    assert host.folder.mark(host.uuid(2)) is None


def test_memory_is_compared_with_what_was_in_use_before(host: Host) -> None:
    host.set(used_bytes={2: 300 << 20})  # a display server, say
    held = host.lease(LeasePlan(indices=(0,)))
    host.set(used_bytes={2: 340 << 20})
    assert host.release(held) == ()
    held = host.lease(LeasePlan(indices=(0,)))
    host.set(used_bytes={2: 420 << 20})
    assert len(host.release(held)) == 1


def test_memory_may_take_a_moment_to_return(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RETURN_S", 20.0)
    held = host.lease(LeasePlan(indices=(0,)))
    host.set(used_bytes={2: GIB})
    threading.Timer(0.4, host.set).start()
    assert host.release(held) == ()
    assert host.folder.mark(host.uuid(2)) is None


def test_a_surviving_process_marks_the_device_until_it_is_gone(host: Host, sleeper: Process) -> None:
    gone = replace(sleeper, start_ticks=sleeper.start_ticks + 1)
    assert host.release(host.lease(LeasePlan(count=1)), (gone,)) == ()
    held = host.lease(LeasePlan(indices=(0,)))
    [fault] = host.release(held, (sleeper, gone))
    assert f"still has process {sleeper.pid} of its last lease" in fault
    with pytest.raises(NoDevice, match=rf"still has process {sleeper.pid} of campaign c0ffee"):
        host.lease(LeasePlan(indices=(0,)))
    os.kill(sleeper.pid, 9)
    deadline = time.monotonic() + 60
    while identify(sleeper.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    close_all(host.lease(LeasePlan(indices=(0,))).fds)


def test_a_mark_of_an_earlier_boot_says_nothing_about_processes(host: Host, sleeper: Process) -> None:
    held = host.lease(LeasePlan(indices=(0,)))
    host.release(held, (sleeper,))
    mark = host.folder.mark(host.uuid(2))
    assert mark is not None
    host.folder.set_mark(host.uuid(2), replace(mark, boot_id="another"))
    close_all(host.lease(LeasePlan(indices=(0,))).fds)
    assert host.folder.mark(host.uuid(2)) is None


def test_a_cpu_is_leased_by_its_lock_alone(tmp_path: Path) -> None:
    folder, inventory = LockFolder(str(tmp_path / "locks")), CpuInventory()
    held = acquire(folder, inventory, inventory.devices(), name_holder("a"), 0.0, idle=True)
    with pytest.raises(LeaseTimeout, match="is held by a of"):
        acquire(folder, inventory, inventory.devices(), name_holder("b"), 0.0, idle=True)
    assert held.release(folder, inventory, ()) == ()


def test_a_passing_look_is_not_a_lease(host: Host) -> None:
    """`is_held` takes a shared lock for an instant; a lease that does not wait must not fail by it."""
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            host.folder.is_held(host.uuid(2))

    close_all(host.lease(LeasePlan(indices=(0,))).fds)
    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(20):
            close_all(host.lease(LeasePlan(indices=(0,))).fds)
    finally:
        stop.set()
        watcher.join()


def test_a_device_in_use_by_an_attached_server_is_only_locked(host: Host) -> None:
    host.set(processes={2: [99]}, used_bytes={2: 40 * GIB})
    devices = pick(host.folder, host.inventory, LeasePlan(count=1), idle=False)
    held = acquire(host.folder, host.inventory, devices, name_holder("a"), 0.0, idle=False)
    assert host.folder.is_held(host.uuid(2))
    assert host.release(held) == ()
    assert host.folder.mark(host.uuid(2)) is None


def test_a_claim_keeps_others_away_between_two_leases(host: Host) -> None:
    plan = LeasePlan(count=2)
    held = claim(host.folder, host.inventory, plan, name_holder("campaign 1"), 0.0, idle=True)
    assert held.uuids == (host.uuid(2), host.uuid(0))
    for _ in range(2):  # its own startups are not in its way
        assert host.release(host.acquire(held.devices)) == ()
        with pytest.raises(LeaseTimeout, match=r"is held by campaign 1 of"):
            claim(host.folder, host.inventory, plan, name_holder("campaign 2"), 0.0, idle=True)
    other = claim(host.folder, host.inventory, LeasePlan(count=1), name_holder("campaign 3"), 0.0, idle=True)
    assert other.uuids == (host.uuid(1),)
    threading.Timer(0.4, held.release).start()
    later = time.monotonic() + 20.0
    assert claim(host.folder, host.inventory, plan, name_holder("campaign 2"), later, idle=True).uuids == held.uuids


def test_a_dead_campaigns_lease_outlives_its_claim(host: Host) -> None:
    held = claim(host.folder, host.inventory, LeasePlan(count=1), name_holder("campaign 1"), 0.0, idle=True)
    lease = host.acquire(held.devices)
    held.release()
    with pytest.raises(LeaseTimeout, match=r"is held by campaign c0ffee"):
        claim(host.folder, host.inventory, LeasePlan(indices=(0,)), name_holder("campaign 2"), 0.0, idle=True)
    close_all(lease.fds)

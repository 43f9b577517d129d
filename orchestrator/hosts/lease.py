"""A lease: the sole use of some devices of this host, proven idle before it is given and after it is given back.

Locks alone do not keep out those who do not know them, so a lease also asks the inventory for foreign processes and
memory in use. A device that is not idle at the end keeps a mark that the next lease re-checks. A CPU is shared by
nature: there the lock is all.

Knows nothing of Ray, servers or arms.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from campaigns.errors import LeaseTimeout, NoDevice
from campaigns.records import Process
from orchestrator.hosts.devices.device import Device, Inventory
from orchestrator.hosts.locks import Holder, Kind, LockFolder, Mark, close_all
from orchestrator.hosts.process import alive, boot_id

IDLE_BYTES = 512 << 20  # an idle GPU without clients uses a few MiB; a desktop's display server some hundred
RETURNED_BYTES = 64 << 20  # how far above its level before the lease the memory in use may end
RETURN_S = 20.0  # drivers give memory back some seconds after a process has died
TRY_S = 0.25  # between two looks at what somebody else holds
LOCK_S = 1.0  # a passing look at a lock (`is_held`) must not read as somebody else's lease, however many look
GLANCE_S = 0.01  # between two tries meanwhile


def name_holder(name: str) -> Holder:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"uid {os.getuid()}"
    return Holder(name, user, socket.gethostname(), os.getpid(), _now())


@dataclass(frozen=True)
class Lease:
    """Held from `acquire` to `release`. `fds` hold the locks; a reaper gets copies of them."""

    devices: tuple[Device, ...]
    fds: tuple[int, ...]
    holder: Holder
    used_bytes: tuple[int | None, ...]  # of each device when it was proven idle; None where the machine does not say
    is_proven: bool = True

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(device.uuid for device in self.devices)

    def unreturned(self, inventory: Inventory, processes: Iterable[Process]) -> dict[str, str]:
        """What is still in the way on each device after a bounded wait; empty when all are idle again.

        `processes` are all that ran on the lease.
        """
        ran = tuple(processes)
        deadline = time.monotonic() + RETURN_S
        while (found := self._faults(inventory, alive(ran))) and time.monotonic() < deadline:
            time.sleep(TRY_S)
        return found

    def release(self, folder: LockFolder, inventory: Inventory, processes: Iterable[Process]) -> tuple[str, ...]:
        """Prove the devices idle, mark those that are not, unlock all; returns one sentence for each marked device."""
        ran = tuple(processes)
        try:
            faults = self.unreturned(inventory, ran)
            for uuid, reason in faults.items():
                folder.set_mark(uuid, Mark(reason, alive(ran), boot_id(), _now(), str(self.holder)))
            return tuple(faults.values())
        finally:
            close_all(self.fds)

    def _faults(self, inventory: Inventory, survivors: Sequence[Process]) -> dict[str, str]:
        faults: dict[str, str] = {}
        for device, before in zip(self.devices, self.used_bytes, strict=True):
            limit = None if before is None else before + RETURNED_BYTES
            fault = _fault(inventory, device, limit) if self.is_proven else ""
            if survivors:
                fault = f"{_name(device)} still has process {_pids(p.pid for p in survivors)} of its last lease"
            if fault:
                faults[device.uuid] = fault
        return faults


def acquire(
    folder: LockFolder, inventory: Inventory, devices: Sequence[Device], holder: Holder, wait_s: float, *, idle: bool
) -> Lease:
    """Lock exactly these devices, all or none, waiting at most `wait_s`; then prove them idle.

    `idle=False` leaves the proof out: a server that we did not start may be running on them. Raises LeaseTimeout naming
    the holder, NoDevice naming what is in the way.
    """
    fds = _lock_all(folder, devices, holder, wait_s)
    try:
        if idle:
            for device in devices:
                require_idle(folder, inventory, device)
        used_bytes = tuple(inventory.memory_used(device.uuid) if idle else None for device in devices)
        return Lease(tuple(devices), fds, holder, used_bytes, is_proven=idle)
    except BaseException:
        close_all(fds)
        raise


def _lock_all(folder: LockFolder, devices: Sequence[Device], holder: Holder, wait_s: float) -> tuple[int, ...]:
    began = time.monotonic()
    deadline = began + max(wait_s, LOCK_S)
    while True:
        fds, missing = try_all(folder, devices, holder, Kind.LEASE)
        if not missing:
            return fds
        if time.monotonic() >= deadline:
            raise LeaseTimeout(held_by_others(folder, [missing], wait_s))
        time.sleep(pause_s(began))


def pause_s(began: float) -> float:
    """Until the next try at a lock: a glance of somebody else passes at once, a lease does not."""
    return GLANCE_S if time.monotonic() - began < LOCK_S else TRY_S


def try_all(folder: LockFolder, devices: Iterable[Device], holder: Holder, kind: Kind) -> tuple[tuple[int, ...], str]:
    """(descriptors, nothing), or (none, the UUID that somebody else holds).

    In the order of their UUIDs, so that two that share devices cannot hold each other up.
    """
    fds: list[int] = []
    for uuid in sorted(device.uuid for device in devices):
        fd = folder.try_lock(uuid, holder, kind)
        if fd is None:
            close_all(fds)
            return (), uuid
        fds.append(fd)
    return tuple(fds), ""


def held_by_others(folder: LockFolder, uuids: Iterable[str], wait_s: float) -> str:
    """The sentence of a LeaseTimeout."""
    holders = "; ".join(f"{uuid} is held by {folder.holder(uuid)}" for uuid in uuids)
    return f"{holders}; lease.wait_s={wait_s:g}. Wait longer, or name another device."


def require_idle(folder: LockFolder, inventory: Inventory, device: Device) -> None:
    """Raise NoDevice with the obstacle; clear a mark whose reason is gone. The caller holds the lock."""
    fault = obstacle(folder, inventory, device)
    if fault:
        raise NoDevice(f"{fault}. End that, or name another device with lease.indices or lease.uuids.")
    if folder.mark(device.uuid):
        folder.set_mark(device.uuid, None)


def obstacle(folder: LockFolder, inventory: Inventory, device: Device) -> str:
    """Why nobody can have the device now, apart from its lock; nothing when it is idle. Processes of a mark count."""
    fault = _fault(inventory, device, IDLE_BYTES)
    mark = folder.mark(device.uuid)
    if mark and mark.boot_id == boot_id() and (left := alive(mark.processes)):
        fault = f"{_name(device)} still has process {_pids(p.pid for p in left)} of {mark.holder}"
    if fault and mark:
        return f"{fault}; it is marked since {mark.utc}: {mark.reason}"
    return fault


def state(folder: LockFolder, inventory: Inventory, device: Device) -> str:
    """One phrase: free, held by whom, or what is in the way."""
    if folder.is_held(device.uuid):
        return f"held by {folder.holder(device.uuid)}"
    return obstacle(folder, inventory, device) or "free"


def _fault(inventory: Inventory, device: Device, limit_bytes: int | None) -> str:
    if pids := inventory.processes(device.uuid):
        return f"{_name(device)} is used by process {_pids(pids)}"
    used = inventory.memory_used(device.uuid)
    if used is not None and limit_bytes is not None and used > limit_bytes:
        return f"{_name(device)} has {used >> 20} MiB in use by nobody visible (idle is up to {limit_bytes >> 20} MiB)"
    return ""


def _name(device: Device) -> str:
    return f"Device {device.index} ({device.uuid})"


def _pids(pids: Iterable[int]) -> str:
    return ", ".join(map(str, pids))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

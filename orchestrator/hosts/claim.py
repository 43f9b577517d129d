"""Which devices a campaign uses: picked once, and claimed from its first startup to its last.

Without the claim another campaign could take the devices between two startups. The claim is the driver's and falls with
it; what still runs then is under the lease of its startup (orchestrator.hosts.lease).

Knows nothing of Ray, servers or arms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from campaigns.errors import LeaseTimeout, NoDevice
from campaigns.plan import LeasePlan
from orchestrator.hosts.devices.device import Device, Inventory, chosen
from orchestrator.hosts.lease import LOCK_S, TRY_S, held_by_others, obstacle, pause_s, try_all
from orchestrator.hosts.locks import Holder, Kind, LockFolder, close_all


def _ignore(why: str) -> None:
    pass


@dataclass(frozen=True)
class Claim:
    devices: tuple[Device, ...]
    fds: tuple[int, ...]

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(device.uuid for device in self.devices)

    def release(self) -> None:
        close_all(self.fds)


def claim(
    folder: LockFolder,
    inventory: Inventory,
    plan: LeasePlan,
    holder: Holder,
    deadline: float,
    *,
    idle: bool,
    on_wait: Callable[[str], None] = _ignore,
) -> Claim:
    """Claim the devices that the plan asks for, waiting until `deadline`; LeaseTimeout names the holder."""
    began = time.monotonic()
    deadline = max(deadline, began + LOCK_S)
    while True:
        devices = pick_patiently(folder, inventory, plan, deadline, idle=idle, on_wait=on_wait)
        fds, missing = try_all(folder, devices, holder, Kind.CLAIM)
        if not missing:
            return Claim(devices, fds)
        if time.monotonic() >= deadline:
            raise LeaseTimeout(held_by_others(folder, [missing], plan.wait_s))
        time.sleep(pause_s(began))


def pick(folder: LockFolder, inventory: Inventory, plan: LeasePlan, *, idle: bool) -> tuple[Device, ...]:
    """The devices that the plan names, or the first ones that are free and idle. Locks nothing.

    `idle=False` looks at the locks alone, as in `acquire`. Raises LeaseTimeout while the devices are merely held,
    NoDevice when waiting cannot help.
    """
    devices = inventory.devices()
    named = asked_for(devices, plan)
    if named:
        if taken := [device.uuid for device in named if folder.is_held(device.uuid)]:
            raise LeaseTimeout(held_by_others(folder, taken, plan.wait_s))
        return named
    held = [device for device in devices if folder.is_held(device.uuid)]
    free = [device for device in devices if device not in held]
    faults = {device: obstacle(folder, inventory, device) if idle else "" for device in free}
    usable = [device for device, fault in faults.items() if not fault]
    if len(usable) >= plan.count:
        return tuple(usable[: plan.count])
    if len(usable) + len(held) >= plan.count:
        raise LeaseTimeout(held_by_others(folder, [device.uuid for device in held], plan.wait_s))
    told = "; ".join(filter(None, faults.values()))
    raise NoDevice(f"lease.count={plan.count}, but only {len(usable)} of {len(devices)} devices can be had: {told}.")


def asked_for(devices: Sequence[Device], plan: LeasePlan) -> tuple[Device, ...]:
    """The devices that the plan names; none where it wants a number of any. NoDevice: this host has not so many."""
    if not (plan.indices or plan.uuids) and plan.count > len(devices):
        raise NoDevice(f"lease.count={plan.count}, but this host has {len(devices)}: {_listed(devices)}.")
    return chosen(devices, plan.indices, plan.uuids)


def pick_patiently(
    folder: LockFolder,
    inventory: Inventory,
    plan: LeasePlan,
    deadline: float,
    *,
    idle: bool,
    on_wait: Callable[[str], None] = _ignore,
) -> tuple[Device, ...]:
    """`pick`, again and again until `deadline` (of time.monotonic) while others hold what is missing.

    `on_wait` is told once, if there is something to wait for.
    """
    told = False
    while True:
        try:
            return pick(folder, inventory, plan, idle=idle)
        except LeaseTimeout as error:
            if time.monotonic() >= deadline:
                raise
            if not told:
                on_wait(str(error))
            told = True
            time.sleep(TRY_S)


def _listed(devices: Iterable[Device]) -> str:
    return ", ".join(f"{device.index}: {device.uuid}" for device in devices) or "none"

"""What a device is and how it is named; the seam behind which NVML, the CPU and simulated hosts answer alike.

A device is named by its UUID. NVML counts all GPUs in PCI order and ignores CUDA_VISIBLE_DEVICES, CUDA counts the
visible ones: an index means NVML's here, and servers are told UUIDs.

Knows nothing of locks, Ray or servers, and not who answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from campaigns.errors import NoDevice


@dataclass(frozen=True)
class Device:
    uuid: str
    index: int  # NVML's; 100·(GPU + 1) + n for the n-th MIG instance of a GPU; 0 for a CPU
    name: str
    memory_bytes: int  # 0 where the driver does not say, as with unified memory
    arch: str = ""  # sm_90, …; empty for a CPU, and where the driver does not say
    gpu: int | None = None  # NVML's index of the GPU that a MIG instance is part of


class Inventory(Protocol):
    """Raises NoDevice when the machine cannot say what is asked."""

    @property
    def driver(self) -> str:
        """Version of the device driver; empty for a CPU."""

    def devices(self) -> tuple[Device, ...]:
        """In index order."""

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        """PIDs that compute on the device; None where a device is shared by nature, as a CPU is."""

    def memory_used(self, uuid: str) -> int | None:
        """Bytes in use without the driver's own reserve; None as above, and where the driver does not say."""

    def energy_mj(self, uuid: str) -> int | None:
        """What the device's own counter says it has drawn since some moment, mJ; None where it has no counter."""

    def near(self, uuid: str) -> frozenset[int]:
        """CPUs near the device; empty where the machine does not say."""

    def visibility(self, uuids: Sequence[str]) -> dict[str, str]:
        """Environment that shows a server these devices, in this order, and no others."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


def chosen(
    devices: Sequence[Device], indices: Sequence[int], uuids: Sequence[str], key: str = "lease.uuids"
) -> tuple[Device, ...]:
    """The devices named by index or UUID (an unambiguous beginning will do), in the order in which they are named.

    `key` is where a person wrote the UUIDs.
    """
    by_index = (_one(devices, index, "lease.indices") for index in indices)
    return (*by_index, *(_one(devices, uuid, key) for uuid in uuids))


def _one(devices: Sequence[Device], name: int | str, key: str) -> Device:
    def is_meant(device: Device) -> bool:
        return device.index == name if isinstance(name, int) else device.uuid.startswith(name)

    found = [device for device in devices if is_meant(device)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{device.index}: {device.uuid}" for device in found or devices) or "none"
    raise NoDevice(
        f"{key} names {name}, which is {'no' if not found else 'no single'} device here; there are {listed}."
    )


def is_visible(device: Device, visible: str | None) -> bool:
    """Whether CUDA_VISIBLE_DEVICES shows the device; like CUDA, the list ends at its first invalid entry."""
    if visible is None:
        return True
    for entry in (part.strip() for part in visible.split(",")):
        if not entry or entry.startswith("-"):
            return False
        if entry in (str(device.index), str(device.gpu)) or (not entry.isdigit() and device.uuid.startswith(entry)):
            return True
    return False

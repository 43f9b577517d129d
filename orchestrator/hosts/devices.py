"""The devices of this host behind one seam: NVML, one CPU device, or a simulated host for tests.

A device is named by its UUID. NVML counts all GPUs in PCI order and ignores CUDA_VISIBLE_DEVICES, CUDA counts the
visible ones: an index means NVML's here, and servers are told UUIDs. GPUs that the launcher's CUDA_VISIBLE_DEVICES
hides are left alone: a batch system may have given them to somebody else.

Knows nothing of locks, Ray or servers.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import pynvml

from campaigns.errors import NoDevice, UsageError
from campaigns.records import CPU_UUID


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

    def visibility(self, uuids: Sequence[str]) -> dict[str, str]:
        """Environment that shows a server these devices, in this order, and no others."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


def open_inventory(spec: str = "auto", visible: str | None = None) -> Inventory:
    """`auto`: NVML where there is a driver, and the launcher has not hidden all GPUs, else the CPU. A driver that is
    there and does not answer is NoDevice: nobody asked for the CPU. Others: `nvml`, `cpu`, `simulated:NAME`.

    `visible` is the launcher's CUDA_VISIBLE_DEVICES; None reads it from this process.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    if spec == "auto":
        return _nvml_if_any(visible) or CpuInventory()
    if spec == "nvml":
        return NvmlInventory(visible)
    if spec == "cpu":
        return CpuInventory()
    if spec.startswith("simulated:"):
        return SimulatedInventory(spec.removeprefix("simulated:"))
    raise UsageError(f"there is no inventory {spec}; lease.inventory is auto, nvml, cpu or simulated:NAME")


def _nvml_if_any(visible: str | None) -> Inventory | None:
    try:
        inventory = NvmlInventory(visible)
    except NoDevice as error:
        if getattr(error.__cause__, "value", None) in _NO_DRIVER:
            return None
        raise NoDevice(f"{error} lease.inventory=cpu measures the CPU.") from error
    if inventory.devices():
        return inventory
    inventory.__exit__()
    if inventory.has_gpus and (visible is None or visible.strip() not in _HIDDEN):
        shown = "; ".join(inventory.notes) or f"CUDA_VISIBLE_DEVICES={visible} names none of {inventory.listed}"
        raise NoDevice(f"There are GPUs here and none can be leased: {shown}. lease.inventory=cpu measures the CPU.")
    return None


_NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_HIDDEN = ("", "-1", "NoDevFiles")  # how a launcher says that no GPU is to be used


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


class NvmlInventory:
    def __init__(self, visible: str | None = None) -> None:
        try:
            pynvml.nvmlInit()
            self._parts = tuple(part for index, gpu in enumerate(_handles()) for part in _parts(index, gpu))
            self._handles = {_text(pynvml.nvmlDeviceGetUUID(part.handle)): part.handle for part in self._parts}
            self.driver = _text(pynvml.nvmlSystemGetDriverVersion())
            self.has_gpus = pynvml.nvmlDeviceGetCount() > 0
            self._devices = tuple(_device(uuid, part) for uuid, part in zip(self._handles, self._parts, strict=True))
        except pynvml.NVMLError as error:
            raise NoDevice(f"NVML does not answer ({error}): install or repair the NVIDIA driver.") from error
        self._visible = visible

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each thing that NVML does not do here as a measurement would like it."""
        return tuple(filter(None, (*map(_undivided, range(pynvml.nvmlDeviceGetCount())), *map(_mute, self._devices))))

    @property
    def listed(self) -> str:
        return ", ".join(f"{device.index}: {device.uuid}" for device in self._devices) or "none"

    def devices(self) -> tuple[Device, ...]:
        return tuple(device for device in self._devices if is_visible(device, self._visible))

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        try:
            return tuple(sorted(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handles[uuid])))
        except pynvml.NVMLError as error:
            raise NoDevice(f"NVML cannot list the processes of {uuid} ({error}), so it cannot be leased.") from error

    def memory_used(self, uuid: str) -> int | None:
        memory = _memory(self._handles[uuid])
        return None if memory is None else int(memory.used)

    def visibility(self, uuids: Sequence[str]) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}

    def handle(self, uuid: str) -> Any:
        """NVML's own handle, for what only a sampler or the doctor asks."""
        return self._handles[uuid]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pynvml.nvmlShutdown()


def _handles() -> list[Any]:
    return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]


@dataclass(frozen=True)
class _Part:
    """What can be leased: a whole GPU, or one MIG instance of it."""

    handle: Any
    gpu_handle: Any
    index: int
    gpu: int | None = None


def _parts(index: int, gpu: Any) -> tuple[_Part, ...]:
    """A GPU that is divided by MIG computes only in its instances."""
    if not _is_divided(gpu):
        return (_Part(gpu, gpu, index),)
    handles = [_mig(gpu, n) for n in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu))]
    return tuple(_Part(h, gpu, 100 * (index + 1) + n, index) for n, h in enumerate(handles) if h is not None)


def _is_divided(gpu: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(gpu)[0])
    except pynvml.NVMLError:
        return False  # a GPU that cannot be


def _mig(gpu: Any, number: int) -> Any | None:
    try:
        return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
    except pynvml.NVMLError:
        return None  # no instance of that number


def _undivided(index: int) -> str:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    if _is_divided(gpu) and not _parts(index, gpu):
        return f"GPU {index} is divided by MIG and has no instance: make one with nvidia-smi mig -cgi, or turn MIG off"
    return ""


def _mute(device: Device) -> str:
    if device.memory_bytes:
        return ""
    return f"device {device.index} does not say how much of its memory is in use: only its processes prove it idle"


def _device(uuid: str, part: _Part) -> Device:
    memory = _memory(part.handle)
    size_bytes = 0 if memory is None else int(memory.total)
    return Device(uuid, part.index, _text(pynvml.nvmlDeviceGetName(part.handle)), size_bytes, _arch(part), part.gpu)


def _memory(handle: Any) -> Any | None:
    """Version 2 counts the driver's reserve apart from `used`; drivers before 510 know only version 1. None where
    neither is supported (unified memory) or permitted.
    """
    for version in ({"version": pynvml.nvmlMemory_v2}, {}):
        try:
            return pynvml.nvmlDeviceGetMemoryInfo(handle, **version)
        except pynvml.NVMLError as error:
            last = error
    if last.value in _NOT_SAID:
        return None
    raise NoDevice(f"NVML does not tell the memory of a device ({last}): it cannot be leased.") from last


_NOT_SAID = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION)


def _arch(part: _Part) -> str:
    try:
        return "sm_{}{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(part.gpu_handle))
    except pynvml.NVMLError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


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


class CpuInventory:
    """One device: this host's processors."""

    driver = ""

    def devices(self) -> tuple[Device, ...]:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return (Device(f"{CPU_UUID}{_host_hash()}", 0, _cpu_name(), memory_bytes),)

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        return None

    def memory_used(self, uuid: str) -> int | None:
        return None

    def visibility(self, uuids: Sequence[str]) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ""}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def _host_hash() -> str:
    """Names the host without giving away its machine id, which systemd asks applications to keep to themselves."""
    path = Path("/etc/machine-id")
    identity = path.read_text().strip() if path.exists() else ""
    return hashlib.sha256(f"campaign device\0{identity or socket.gethostname()}".encode()).hexdigest()[:12]


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return model or platform.machine()


@dataclass(frozen=True)
class Scenario:
    """What a simulated host shows. `order` lists the GPU numbers in NVML's index order."""

    order: tuple[int, ...] = tuple(range(8))
    processes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    used_bytes: Mapping[int, int] = field(default_factory=dict)


SCENARIOS = {
    "one": Scenario(order=(0,)),
    "eight": Scenario(),
    "shuffled": Scenario(order=(5, 2, 7, 0, 3, 6, 1, 4)),
    "foreign": Scenario(processes={0: (4194304,)}, used_bytes={0: 9 << 30}),  # a PID beyond the largest possible
    "stuck": Scenario(used_bytes={0: 9 << 30}),
}


class SimulatedInventory:
    """Eight GPUs that are not there. NAME is a scenario of this module or a JSON file with the fields of `Scenario`.

    A file is read at every question, so that a test can change a device while two campaigns share it. The locks on
    simulated devices are real ones.
    """

    driver = "simulated"

    def __init__(self, name: str) -> None:
        if name not in SCENARIOS and not name.endswith(".json"):
            raise UsageError(f"there is no inventory simulated:{name}; take {', '.join(SCENARIOS)} or a .json file")
        self._name = name

    def devices(self) -> tuple[Device, ...]:
        order = self._scenario().order
        return tuple(Device(_simulated_uuid(n), index, "Simulated GPU", 80 << 30) for index, n in enumerate(order))

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        return tuple(self._scenario().processes.get(_number(uuid), ()))

    def memory_used(self, uuid: str) -> int | None:
        return self._scenario().used_bytes.get(_number(uuid), 0)

    def visibility(self, uuids: Sequence[str]) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}

    def _scenario(self) -> Scenario:
        return SCENARIOS.get(self._name) or _read_scenario(Path(self._name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def _read_scenario(path: Path) -> Scenario:
    try:
        values = json.loads(path.read_text())
        return Scenario(
            tuple(values.get("order", range(8))),
            {int(n): tuple(pids) for n, pids in values.get("processes", {}).items()},
            {int(n): int(size) for n, size in values.get("used_bytes", {}).items()},
        )
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"simulated:{path} is not a scenario ({error}); see orchestrator/hosts/devices.py") from error


def _simulated_uuid(number: int) -> str:
    return f"GPU-51300000-0000-4000-8000-{number:012d}"


def _number(uuid: str) -> int:
    return int(uuid.rsplit("-", 1)[1])

"""The GPUs of this host as NVML tells them: whole ones, and the instances of those that MIG divides.

NVML does not always answer: memory that is unified or not permitted is None, a driver that does not match its library
is NoDevice with NVML's words.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pynvml

from campaigns.errors import NoDevice
from orchestrator.hosts.devices.device import Device, is_visible


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

    def energy_mj(self, uuid: str) -> int | None:
        """Volta and later; none of a MIG instance, whose GPU counts for all of them."""
        try:
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handles[uuid]))
        except pynvml.NVMLError:
            return None

    def near(self, uuid: str) -> frozenset[int]:
        try:
            words = pynvml.nvmlDeviceGetCpuAffinity(self._handles[uuid], (max(os.sched_getaffinity(0)) >> 6) + 1)
        except pynvml.NVMLError:
            return frozenset()
        return frozenset(64 * i + bit for i, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1)

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

"""What NVML says of one GPU that matters to a measurement: processes, clocks, temperature, modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from orchestrator.diagnosis.row import Level, Row
from orchestrator.hosts.devices.device import Device, Inventory
from orchestrator.hosts.devices.hardware import SLOWDOWN
from orchestrator.hosts.devices.nvml import NvmlInventory
from orchestrator.hosts.process import command_name

_COOL_C = 80


def gpu_rows(inventory: Inventory, device: Device) -> Iterator[Row]:
    """Nothing for a device that NVML does not know."""
    if not isinstance(inventory, NvmlInventory):
        return
    subject, handle = f"device {device.index}", inventory.handle(device.uuid)
    for pid in inventory.processes(device.uuid) or ():
        name = command_name(pid) or "of another container or user"
        yield Row(subject, Level.WARNING, f"process {pid} ({name}) computes here", "end it, or lease another device")
    yield Row(subject, Level.OK, _clocks(handle))
    temperature = _said(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    if temperature is not None and temperature > _COOL_C:
        yield Row(subject, Level.WARNING, f"{temperature} °C", "let it cool: hot devices throttle")
    bits = _said(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    if bits & SLOWDOWN:
        yield Row(subject, Level.WARNING, f"slowed down by the hardware (reasons {bits:#x})", "check power and cooling")
    if device.gpu is not None:
        remedy = "measure on a whole GPU what is meant for one: clocks, power and caches of instances are shared"
        yield Row(subject, Level.WARNING, f"a MIG instance of GPU {device.gpu}: its neighbours may be at work", remedy)
    if _said(pynvml.nvmlDeviceGetPersistenceMode, handle) == 0:
        remedy = "nvidia-smi -pm 1, or every idle moment costs the first request an initialisation"
        yield Row(subject, Level.WARNING, "persistence mode is off", remedy)


def _clocks(handle: Any) -> str:
    now, most = (
        [_said(ask, handle, clock) for clock in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)]
        for ask in (pynvml.nvmlDeviceGetClockInfo, pynvml.nvmlDeviceGetMaxClockInfo)
    )
    power, limit = _said(pynvml.nvmlDeviceGetPowerUsage, handle), _said(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    watts = "" if power is None or limit is None else f", {power / 1000:.0f} of {limit / 1000:.0f} W"
    return f"SM {now[0]} of {most[0]} MHz, memory {now[1]} of {most[1]} MHz{watts}"


def _said(ask: Callable[..., Any], *arguments: Any) -> Any:
    """None where this device or driver does not support the question."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None

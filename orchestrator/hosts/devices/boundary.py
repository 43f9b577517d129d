"""What a GPU says of itself at the boundaries of a startup: errors, energy, link, modes. Nothing is judged here.

Read beside the live server's identity, after warm-up and after the last request, so that the two can be compared years
later. A value that a device does not offer is left out. NVML answers in microseconds, and never between the requests of
a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from orchestrator.hosts.devices.device import Inventory
from orchestrator.hosts.devices.nvml import NvmlInventory

_READERS: dict[str, Callable[[Any], Any]] = {
    "ecc_uncorrected": lambda handle: _ecc(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "ecc_corrected": lambda handle: _ecc(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "energy_mj": lambda handle: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
    "pcie_generation": lambda handle: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
    "pcie_width": lambda handle: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
    "pcie_replays": lambda handle: pynvml.nvmlDeviceGetPcieReplayCounter(handle),
    "persistence": lambda handle: bool(pynvml.nvmlDeviceGetPersistenceMode(handle)),
    "mig": lambda handle: bool(pynvml.nvmlDeviceGetMigMode(handle)[0]),
    "application_sm_mhz": lambda handle: pynvml.nvmlDeviceGetApplicationsClock(handle, pynvml.NVML_CLOCK_SM),
    "application_memory_mhz": lambda handle: pynvml.nvmlDeviceGetApplicationsClock(handle, pynvml.NVML_CLOCK_MEM),
    "power_limit_mw": lambda handle: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle),
}


def device_states(inventory: Inventory, uuids: Sequence[str]) -> list[dict[str, Any]]:
    """One entry per GPU, `uuid` and the values that it offers; empty for a CPU and for simulated devices."""
    if not isinstance(inventory, NvmlInventory):
        return []
    return [{"uuid": uuid, "driver": inventory.driver, **_state(inventory.handle(uuid))} for uuid in uuids]


def _state(handle: Any) -> dict[str, Any]:
    found = {}
    for name, read in _READERS.items():
        try:
            found[name] = read(handle)
        except pynvml.NVMLError:
            continue
    return found


def _ecc(handle: Any, kind: int) -> int:
    """Errors since the driver was loaded."""
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC))

"""Which devices a campaign means: `auto`, `nvml`, `cpu` or `simulated:NAME`.

GPUs that the launcher's CUDA_VISIBLE_DEVICES hides are left alone: a batch system may have given them to somebody else.
"""

from __future__ import annotations

import os

import pynvml

from campaigns.errors import NoDevice, UsageError
from orchestrator.hosts.devices.cpu import CpuInventory
from orchestrator.hosts.devices.device import Inventory
from orchestrator.hosts.devices.nvml import NvmlInventory
from orchestrator.hosts.devices.simulated import SimulatedInventory


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
    with inventory:
        notes = inventory.notes
    if inventory.has_gpus and (visible is None or visible.strip() not in _HIDDEN):
        shown = "; ".join(notes) or f"CUDA_VISIBLE_DEVICES={visible} names none of {inventory.listed}"
        raise NoDevice(f"There are GPUs here and none can be leased: {shown}. lease.inventory=cpu measures the CPU.")
    return None


_NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_HIDDEN = ("", "-1", "NoDevFiles")  # how a launcher says that no GPU is to be used

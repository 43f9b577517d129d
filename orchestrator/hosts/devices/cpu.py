"""This host's processors as one device."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from campaigns.records import CPU_UUID
from orchestrator.hosts.devices.device import Device


class CpuInventory:
    driver = ""

    def devices(self) -> tuple[Device, ...]:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return (Device(f"{CPU_UUID}{_host_hash()}", 0, _cpu_name(), memory_bytes),)

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        return None

    def memory_used(self, uuid: str) -> int | None:
        return None

    def energy_mj(self, uuid: str) -> int | None:
        return None

    def near(self, uuid: str) -> frozenset[int]:
        return frozenset()

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

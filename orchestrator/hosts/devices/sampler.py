"""Samples of the leased devices during warm-up and measurement, taken by a process of its own.

The process writes one JSON line per device and tick into a file in memory, which the owner reads when it likes: a slow
reader never blocks a tick, and no thread of the owner's is woken. It ends when its stdin closes. NVML is reached
through `orchestrator.hosts.devices.nvml`; a CPU host gives load average, mean frequency and used memory.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Self

import pynvml

from campaigns.errors import HelperLost, UsageError
from campaigns.records import DeviceSample
from orchestrator.checkouts.places import ROOT
from orchestrator.hosts.devices.cpu import CpuInventory
from orchestrator.hosts.devices.device import Inventory
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.devices.nvml import NvmlInventory

_HZ = (0.1, 10.0)
_END_WAIT_S = 5.0


class Sampler:
    """`hz` 0 samples nothing. `visible` is the launcher's CUDA_VISIBLE_DEVICES, as for `open_inventory`."""

    def __init__(self, inventory: str, uuids: Sequence[str], hz: float, visible: str | None = None) -> None:
        if hz != 0 and not _HZ[0] <= hz <= _HZ[1]:
            raise UsageError(f"startup.sample_hz={hz}: use 0 for no samples, or {_HZ[0]} to {_HZ[1]}")
        self._orders = {"inventory": inventory, "uuids": list(uuids), "hz": hz, "visible": visible}
        self._child: subprocess.Popen[bytes] | None = None
        self._fd = -1
        self._read_bytes = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        if self._orders["hz"] == 0 or self._child is not None:
            return
        self._fd = os.memfd_create("samples")
        self._read_bytes = 0
        command = [sys.executable, "-m", "orchestrator.hosts.devices.sampler", json.dumps(self._orders)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._fd, cwd=ROOT)

    def require(self) -> None:
        """HelperLost where the process has died: nobody would see what else runs on the devices."""
        if self._child is not None and (code := self._child.poll()) is not None:
            where = ": see its message above" if code > 0 else ""
            raise HelperLost(f"the process that samples the devices ended with code {code}{where}")

    def drain(self, own_pids: Collection[int] = ()) -> list[DeviceSample]:
        """Samples since the last call; PIDs on a device that are not `own_pids` are foreign."""
        if self._fd < 0:
            return []
        size_bytes = os.fstat(self._fd).st_size
        data = os.pread(self._fd, size_bytes - self._read_bytes, self._read_bytes)
        data = data[: data.rfind(b"\n") + 1]  # a line may be half written
        self._read_bytes += len(data)
        samples = [_sample(json.loads(line)) for line in data.splitlines()]
        return [
            dataclasses.replace(s, foreign_pids=tuple(p for p in s.foreign_pids if p not in own_pids)) for s in samples
        ]

    def stop(self) -> None:
        """End the process; what it wrote can still be drained."""
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(_END_WAIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def close(self) -> None:
        self.stop()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _sample(fields: dict[str, Any]) -> DeviceSample:
    return DeviceSample(**{**fields, "foreign_pids": tuple(fields["foreign_pids"])})


def sample(inventory: Inventory, uuid: str) -> DeviceSample:
    """The device as it is now; `foreign_pids` holds every PID on it, whoever's. None where the machine does not say."""
    read = _of_gpu if isinstance(inventory, NvmlInventory) else _of_cpu if isinstance(inventory, CpuInventory) else None
    facts = read(inventory, uuid) if read is not None else {}
    fields = dict.fromkeys((f.name for f in dataclasses.fields(DeviceSample)), None)
    return DeviceSample(
        **{
            **fields,
            "ns": time.monotonic_ns(),
            "device_uuid": uuid,
            "used_bytes": inventory.memory_used(uuid),
            "foreign_pids": inventory.processes(uuid) or (),
            **facts,
        }
    )


def _of_gpu(inventory: Any, uuid: str) -> dict[str, Any]:
    handle = inventory.handle(uuid)
    return {
        "sm_clock_mhz": _said(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": _said(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        "power_mw": _said(pynvml.nvmlDeviceGetPowerUsage, handle),
        "temperature_c": _said(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "throttle_bits": _said(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        "load": _said(_utilisation, handle),
    }


def _utilisation(handle: Any) -> float:
    return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _said(ask: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML answers; None where this device or driver does not support the question."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None


def _of_cpu(inventory: Any, uuid: str) -> dict[str, Any]:
    return {"load": os.getloadavg()[0], "sm_clock_mhz": _cpu_mhz(), "used_bytes": _used_memory_bytes()}


def _cpu_mhz() -> int | None:
    """Mean frequency of all processors, as the governor says, else as the kernel's processor list says."""
    khz = [int(path.read_text()) for path in Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_cur_freq")]
    if khz:
        return round(sum(khz) / len(khz) / 1000)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    mhz = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    return round(sum(mhz) / len(mhz)) if mhz else None


def _used_memory_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return 1024 * (kib["MemTotal"] - kib["MemAvailable"])


def main(orders: dict[str, Any]) -> None:
    """The sampling process: one line per device and tick until stdin closes."""
    period_s = 1 / orders["hz"]
    with open_inventory(orders["inventory"], orders["visible"]) as inventory:
        due = time.monotonic()
        while True:
            lines = [json.dumps(dataclasses.asdict(sample(inventory, uuid))) for uuid in orders["uuids"]]
            os.write(sys.stdout.fileno(), ("\n".join(lines) + "\n").encode())
            due = max(due + period_s, time.monotonic())
            if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                return


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""GPUs that are not there: a host of scenarios, for tests and for trying leases out."""

from __future__ import annotations

import json
import socket
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from campaigns.errors import UsageError
from orchestrator.hosts.devices.device import Device


@dataclass(frozen=True)
class Scenario:
    """What a simulated host shows. `order` lists the GPU numbers in NVML's index order."""

    order: tuple[int, ...] = tuple(range(8))
    processes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    used_bytes: Mapping[int, int] = field(default_factory=dict)
    watts: Mapping[int, float] = field(default_factory=dict)  # of the devices that count their energy
    of_host: bool = False  # UUIDs that no other host has, as those of real devices are


_NO_HOST = 0x51300000
SCENARIOS = {
    "one": Scenario(order=(0,)),
    "eight": Scenario(),
    "shuffled": Scenario(order=(5, 2, 7, 0, 3, 6, 1, 4)),
    "foreign": Scenario(processes={0: (4194304,)}, used_bytes={0: 9 << 30}),  # a PID beyond the largest possible
    "fleet": Scenario(of_host=True),
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
        scenario = self._scenario()
        host = zlib.crc32(socket.gethostname().encode()) if scenario.of_host else _NO_HOST
        uuids = [_simulated_uuid(n, host) for n in scenario.order]
        return tuple(Device(uuid, index, "Simulated GPU", 80 << 30) for index, uuid in enumerate(uuids))

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        return tuple(self._scenario().processes.get(_number(uuid), ()))

    def memory_used(self, uuid: str) -> int | None:
        return self._scenario().used_bytes.get(_number(uuid), 0)

    def energy_mj(self, uuid: str) -> int | None:
        """As if the device had drawn its power since the host was started; a host that does not answer tells none."""
        try:
            watts = self._scenario().watts.get(_number(uuid))
        except UsageError:
            return None
        return None if watts is None else round(watts * time.monotonic_ns() * 1e-6)

    def near(self, uuid: str) -> frozenset[int]:
        return frozenset()

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
            {int(n): float(watts) for n, watts in values.get("watts", {}).items()},
        )
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"simulated:{path} is not a scenario ({error}); see orchestrator/hosts/devices/simulated.py"
        ) from error


def _simulated_uuid(number: int, host: int = _NO_HOST) -> str:
    return f"GPU-{host:08x}-0000-4000-8000-{number:012d}"


def _number(uuid: str) -> int:
    return int(uuid.rsplit("-", 1)[1])

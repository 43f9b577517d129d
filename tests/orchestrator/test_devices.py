"""The inventory: one seam over NVML, the CPU and simulated hosts."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pynvml
import pytest

from campaigns.errors import NoDevice, UsageError
from orchestrator.hosts.boundary import device_states
from orchestrator.hosts.devices import CpuInventory, Device, NvmlInventory, SimulatedInventory, chosen, open_inventory
from orchestrator.hosts.lease import IDLE_BYTES

GPUS = [Device("GPU-aaa1", 0, "x", 1), Device("GPU-aab2", 1, "x", 1), Device("GPU-c", 2, "x", 1)]


class FakeNvml:
    """Three GPUs as NVML's functions show them: handles are indices."""

    def __init__(self) -> None:
        self.uuids = ("GPU-aaa1", "GPU-aab2", "GPU-c")
        self.pids = (7, 3)
        self.knows_v2 = True
        self.num_shut = 0

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlInit": lambda: None,
            "nvmlShutdown": self._shut,
            "nvmlSystemGetDriverVersion": lambda: b"580.1",
            "nvmlDeviceGetCount": lambda: len(self.uuids),
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: self.uuids[handle],
            "nvmlDeviceGetName": lambda handle: f"GPU number {handle}",
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetCudaComputeCapability": self._capability,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=pid) for pid in self.pids],
        }

    def _capability(self, handle: int) -> tuple[int, int]:
        if handle == 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return ((9, 0), (12, 1))[handle]

    def _shut(self) -> None:
        self.num_shut += 1

    def _memory(self, handle: int, version: int = 1) -> SimpleNamespace:
        if version != 1 and not self.knows_v2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(total=80 << 30, used=(5 << 20) if version != 1 else (600 << 20))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, function in fake.functions().items():
        monkeypatch.setattr(pynvml, name, function)
    return fake


def test_without_a_driver_the_device_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    with open_inventory("auto") as inventory:
        [device] = inventory.devices()
        assert isinstance(inventory, CpuInventory)
    assert device.uuid.startswith("cpu-") and device.index == 0 and device.memory_bytes > 1 << 28
    assert inventory.processes(device.uuid) is None
    assert inventory.visibility([device.uuid]) == {"CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(NoDevice, match="NVML does not answer"):
        open_inventory("nvml")


def test_the_cpu_is_named_by_its_host_and_hides_the_machine_id() -> None:
    [device] = CpuInventory().devices()
    assert device == CpuInventory().devices()[0]
    machine_id = Path("/etc/machine-id")
    if machine_id.exists() and machine_id.read_text().strip():
        assert device.uuid.removeprefix("cpu-") not in machine_id.read_text()


def test_nvml_is_asked_for_devices_processes_and_memory(nvml: FakeNvml) -> None:
    with open_inventory("auto", None) as inventory:
        assert isinstance(inventory, NvmlInventory)
        assert inventory.driver == "580.1"
        assert [(d.uuid, d.index) for d in inventory.devices()] == [("GPU-aaa1", 0), ("GPU-aab2", 1), ("GPU-c", 2)]
        assert [d.arch for d in inventory.devices()] == ["sm_90", "sm_121", ""]
        assert inventory.processes("GPU-c") == (3, 7)
        assert inventory.memory_used("GPU-c") == 5 << 20
        assert inventory.visibility(["GPU-c", "GPU-aaa1"]) == {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-aaa1"}
    assert nvml.num_shut == 1


def test_a_boundary_keeps_what_a_device_offers(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object) -> NoReturn:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in (name for name in vars(pynvml) if name.startswith("nvmlDeviceGet") and name not in nvml.functions()):
        monkeypatch.setattr(pynvml, name, lacks)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda handle: 100 + handle)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEccErrors", lambda handle, kind, counter: 10 * kind + counter)
    [state] = device_states(NvmlInventory(), ["GPU-c"])
    uncorrected = 10 * pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED + pynvml.NVML_VOLATILE_ECC
    assert state["energy_mj"] == 102 and state["ecc_uncorrected"] == uncorrected
    assert set(state) == {"uuid", "driver", "energy_mj", "ecc_uncorrected", "ecc_corrected"}
    assert device_states(CpuInventory(), ["cpu-1"]) == []


def test_an_old_driver_counts_its_reserve(nvml: FakeNvml) -> None:
    nvml.knows_v2 = False
    assert NvmlInventory().memory_used("GPU-c") == 600 << 20


def test_a_process_list_that_is_refused_is_no_idle_device(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", refuse)
    with pytest.raises(NoDevice, match="cannot list the processes of GPU-c"):
        NvmlInventory().processes("GPU-c")


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, [0, 1, 2]),
        ("2,0", [0, 2]),
        ("GPU-aab", [1]),
        ("GPU-c,GPU-aaa1", [0, 2]),
        ("1,-1,2", [1]),
        ("", []),
        ("-1", []),
        ("0,,2", [0]),
    ],
)
def test_what_the_launcher_hides_is_left_alone(nvml: FakeNvml, visible: str | None, shown: list[int]) -> None:
    assert [device.index for device in NvmlInventory(visible).devices()] == shown


def test_a_host_whose_gpus_are_all_hidden_is_a_cpu(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert isinstance(open_inventory("auto"), CpuInventory)
    assert nvml.num_shut == 1


def test_devices_are_named_by_index_or_uuid_in_the_given_order() -> None:
    assert [d.index for d in chosen(GPUS, (2, 0), ())] == [2, 0]
    assert [d.index for d in chosen(GPUS, (), ("GPU-c", "GPU-aaa"))] == [2, 0]
    with pytest.raises(NoDevice, match=r"lease.indices names 5, which is no device here; there are 0: GPU-aaa1"):
        chosen(GPUS, (5,), ())
    with pytest.raises(NoDevice, match=r"lease.uuids names GPU-aa, which is no single device here; there are 0: .*1: "):
        chosen(GPUS, (), ("GPU-aa",))


def test_index_order_need_not_be_uuid_order() -> None:
    shuffled, ordered = SimulatedInventory("shuffled"), SimulatedInventory("eight")
    assert {d.uuid for d in shuffled.devices()} == {d.uuid for d in ordered.devices()}
    [second] = chosen(shuffled.devices(), (1,), ())
    assert second.uuid == ordered.devices()[2].uuid
    assert shuffled.visibility([second.uuid]) == {"CUDA_VISIBLE_DEVICES": second.uuid}


def test_simulated_troubles() -> None:
    first, second, *_ = SimulatedInventory("foreign").devices()
    assert SimulatedInventory("foreign").processes(first.uuid) and not SimulatedInventory("foreign").processes(
        second.uuid
    )
    stuck = SimulatedInventory("stuck")
    assert stuck.processes(first.uuid) == () and (stuck.memory_used(first.uuid) or 0) > 1 << 30


def test_a_scenario_file_is_read_at_every_question(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"order": [3]}))
    inventory = open_inventory(f"simulated:{path}")
    [device] = inventory.devices()
    assert inventory.processes(device.uuid) == ()
    path.write_text(json.dumps({"order": [3], "processes": {"3": [12]}, "used_bytes": {"3": 99}}))
    assert inventory.processes(device.uuid) == (12,)
    assert inventory.memory_used(device.uuid) == 99
    path.write_text("[")
    with pytest.raises(UsageError, match=r"host.json is not a scenario"):
        inventory.devices()


@pytest.mark.parametrize("spec", ["magic", "simulated:seven", ""])
def test_an_unknown_inventory_is_a_usage_error(spec: str) -> None:
    with pytest.raises(UsageError, match=f"there is no inventory {spec}; "):
        open_inventory(spec)


@pytest.mark.gpu
def test_a_real_gpu_shows_a_context_of_this_process() -> None:
    try:
        inventory = NvmlInventory()
    except NoDevice as error:
        pytest.skip(str(error))
    with inventory:
        uuid = inventory.devices()[0].uuid
        before = inventory.memory_used(uuid) or 0
        cuda, handle, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
        assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(handle), 0) == 0
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle) == 0
        assert before < IDLE_BYTES
        assert (inventory.memory_used(uuid) or 0) > before + (100 << 20)
        assert cuda.cuDevicePrimaryCtxRelease_v2(handle) == 0

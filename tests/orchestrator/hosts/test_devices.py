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
from orchestrator.diagnosis.doctor import CHECKS, Scope, examine
from orchestrator.hosts.devices.boundary import device_states
from orchestrator.hosts.devices.cpu import CpuInventory
from orchestrator.hosts.devices.device import Device, chosen
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.devices.nvml import NvmlInventory
from orchestrator.hosts.devices.simulated import SimulatedInventory
from orchestrator.hosts.lease import IDLE_BYTES, acquire, name_holder
from orchestrator.hosts.locks import LockFolder

GPUS = [Device("GPU-aaa1", 0, "x", 1), Device("GPU-aab2", 1, "x", 1), Device("GPU-c", 2, "x", 1)]


class FakeNvml:
    """Three GPUs as NVML's functions show them: handles are indices."""

    def __init__(self) -> None:
        self.uuids = ("GPU-aaa1", "GPU-aab2", "GPU-c")
        self.pids = (7, 3)
        self.knows_v2 = True
        self.num_open = self.num_shut = 0

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shut,
            "nvmlSystemGetDriverVersion": lambda: b"580.1",
            "nvmlDeviceGetCount": self._count,
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

    def _init(self) -> None:
        self.num_open += 1

    def _shut(self) -> None:
        self.num_shut += 1
        self.num_open -= 1

    def _count(self) -> int:
        if not self.num_open:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        return len(self.uuids)

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


def failing(number: int) -> Callable[..., NoReturn]:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise pynvml.NVMLError(number)

    return fail


def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """(level, text) of the doctor's rows on devices."""
    scope = Scope(tmp_path, str(tmp_path / "locks"))
    monkeypatch.setattr("orchestrator.diagnosis.doctor.CHECKS", [c for c in CHECKS if c[0] == "devices"])
    return [(row.level.value, row.found) for row in examine(scope)]


@pytest.mark.parametrize("number", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION])
def test_memory_that_is_not_told_leaves_the_proof_to_the_processes(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", failing(number))
    folder, holder = LockFolder(str(tmp_path / "locks")), name_holder("test")
    with open_inventory("auto") as inventory:
        device = inventory.devices()[0]
        assert device.memory_bytes == 0 and inventory.memory_used(device.uuid) is None
        with pytest.raises(NoDevice, match="is used by process 3, 7"):
            acquire(folder, inventory, [device], holder, 0.0, idle=True)
        nvml.pids = ()
        lease = acquire(folder, inventory, [device], holder, 0.0, idle=True)
        assert lease.unreturned(inventory, ()) == {}
        assert lease.release(folder, inventory, ()) == ()
    assert ("warning", "device 0 does not say how much of its memory is in use: only its processes prove it idle") in (
        doctor(monkeypatch, tmp_path)
    )


@pytest.mark.parametrize("number", [pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, pynvml.NVML_ERROR_UNKNOWN])
def test_a_driver_that_does_not_answer_is_never_the_cpu(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", failing(number))
    words = str(pynvml.NVMLError(number))
    with pytest.raises(NoDevice, match=r"lease.inventory=cpu") as refused:
        open_inventory("auto")
    assert words in str(refused.value)
    [(level, found)] = doctor(monkeypatch, tmp_path)
    assert level == "fault" and words in found


def test_a_gpu_that_is_lost_is_a_sentence(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", failing(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(NoDevice, match="NVML does not answer"):
        open_inventory("auto")


@pytest.mark.parametrize("visible", ["MIG-nobody", "GPU-other", "7"])
def test_visible_devices_that_are_none_are_never_the_cpu(nvml: FakeNvml, visible: str) -> None:
    with pytest.raises(NoDevice, match=f"CUDA_VISIBLE_DEVICES={visible} names none of 0: GPU-aaa1"):
        open_inventory("auto", visible)
    for hidden in ("", "-1"):
        with open_inventory("auto", hidden) as inventory:
            assert isinstance(inventory, CpuInventory), "hidden on purpose"


@pytest.fixture
def divided(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """GPU 0 whole, GPU 1 with two MIG instances (handles 10 and 12), GPU 2 divided and without any."""
    instances = {(1, 0): 10, (1, 2): 12}
    uuids = {10: "MIG-11", 12: "MIG-22"}

    def instance(gpu: int, number: int) -> int:
        if (gpu, number) not in instances:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return instances[gpu, number]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda handle: (int(handle in (1, 2)),) * 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMaxMigDeviceCount", lambda handle: 7)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", instance)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: uuids.get(handle) or nvml.uuids[handle])
    processes = {12: [SimpleNamespace(pid=5)]}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda handle: processes.get(handle, []))
    return nvml


def test_mig_instances_are_devices_and_their_gpus_are_not(
    divided: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open_inventory("auto") as inventory:
        assert [(d.index, d.uuid, d.gpu) for d in inventory.devices()] == [
            (0, "GPU-aaa1", None),
            (200, "MIG-11", 1),
            (202, "MIG-22", 1),
        ]
        assert inventory.devices()[1].arch == "sm_121", "of its GPU"
        assert inventory.processes("MIG-22") == (5,) and inventory.processes("MIG-11") == ()
        assert inventory.visibility(["MIG-11"]) == {"CUDA_VISIBLE_DEVICES": "MIG-11"}
    with open_inventory("auto", "MIG-22") as inventory:
        assert [device.uuid for device in inventory.devices()] == ["MIG-22"]
    told = " ".join(found for _, found in doctor(monkeypatch, tmp_path))
    assert "GPU 2 is divided by MIG and has no instance" in told and "a MIG instance of GPU 1" in told


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

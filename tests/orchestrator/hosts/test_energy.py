"""Energy of a request: differences of counters, integrals of power, and who tells neither."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pynvml
import pytest

from campaigns.records import DeviceSample, EnergySource, Request
from orchestrator.hosts.devices.energy import counted_mj, difference_mj, integrated_mj, with_power
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.devices.nvml import NvmlInventory

S = 1_000_000_000
EMPTY = dict.fromkeys((field.name for field in dataclasses.fields(DeviceSample)), None)


def sample(at_s: float, watts: float | None, uuid: str = "GPU-1") -> DeviceSample:
    power_mw = None if watts is None else round(watts * 1000)
    return DeviceSample(
        **{**EMPTY, "ns": round(at_s * S), "device_uuid": uuid, "foreign_pids": (), "power_mw": power_mw}
    )


def test_power_is_integrated_between_sending_and_the_end() -> None:
    steady = [sample(t / 4, 300.0) for t in range(13)]
    assert integrated_mj(steady, round(0.6 * S), round(2.6 * S)) == 600_000
    ramp = [sample(t / 4, 100.0 * t / 4) for t in range(13)]  # 100 W more every second, from a second before
    assert integrated_mj(ramp, 1 * S, 3 * S) == 400_000  # mean 200 W for 2 s
    assert integrated_mj(ramp, round(1.1 * S), round(2.9 * S)) == 360_000, "ends between samples are interpolated"


def test_a_wave_that_is_sampled_often_enough_gives_its_integral() -> None:
    """350 W and a wave of 100 W that takes half a second, at four samples a second of odd phase: within 2 %."""
    samples = [sample(t, 350 + 100 * float(np.sin(4 * np.pi * t))) for t in np.arange(-0.4, 11, 0.237)]
    assert integrated_mj(samples, 0, 10 * S) == pytest.approx(3_500_000, rel=0.02)


def test_all_devices_count_and_one_that_is_silent_leaves_none() -> None:
    both = [sample(t / 4, watts, uuid) for t in range(9) for watts, uuid in ((300.0, "GPU-1"), (200.0, "GPU-2"))]
    assert integrated_mj(both, 0, 2 * S) == 1_000_000
    silent = [*both, *(sample(t / 4, None, "MIG-1") for t in range(9))]
    assert integrated_mj(silent, 0, 2 * S) is None
    assert integrated_mj([sample(0.5, 300.0)], 0, S) is None, "one look is no integral"
    assert integrated_mj([], 0, S) is None


def test_a_counter_is_believed_before_samples(wire: Any) -> None:
    answered: Request = wire.play(*wire.stream(wire.text("a", [1], "stop"), wire.usage(1))).request
    whole_s = (answered.end_ns - answered.send_ns) / S
    samples = [sample(answered.send_ns / S + share * whole_s, 400.0) for share in (0.0, 0.5, 0.99)]
    joined = with_power(answered, samples)
    assert joined.energy_source is EnergySource.POWER
    assert joined.energy_mj == pytest.approx(400_000 * whole_s, abs=1)
    counted = dataclasses.replace(answered, energy_mj=7, energy_source=EnergySource.COUNTER)
    assert with_power(counted, samples) == counted


def test_a_counter_that_went_back_tells_nothing() -> None:
    assert difference_mj(100, 350) == 250 and difference_mj(350, 100) is None and difference_mj(None, 1) is None


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU 0 counts, GPU 1 is divided by MIG into one instance, GPU 2 is older than its counter."""

    def counter(handle: int) -> int:
        if handle != 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 123_456

    def instance(gpu: int, number: int) -> int:
        if number:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 10

    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: {0: "GPU-0", 10: "MIG-1", 2: "GPU-2"}[handle],
        "nvmlDeviceGetName": lambda handle: "GPU",
        "nvmlDeviceGetMemoryInfo": lambda handle, version=1: SimpleNamespace(total=1 << 30, used=0),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetMigMode": lambda handle: (int(handle == 1),) * 2,
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": instance,
        "nvmlDeviceGetTotalEnergyConsumption": counter,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)


def test_nvmls_counter_and_the_devices_that_have_none(nvml: None) -> None:
    with NvmlInventory() as inventory:
        assert inventory.energy_mj("GPU-0") == 123_456
        assert inventory.energy_mj("MIG-1") is None and inventory.energy_mj("GPU-2") is None
        assert counted_mj(inventory, ["GPU-0"]) == 123_456
        assert counted_mj(inventory, ["GPU-0", "GPU-2"]) is None and counted_mj(inventory, []) is None
    with open_inventory("cpu") as host:
        assert counted_mj(host, [host.devices()[0].uuid]) is None

"""Device samples and what they say about a request. Cases 49, 50."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import UsageError
from campaigns.reasons import Reason
from campaigns.records import DeviceSample, Request
from orchestrator.hosts.devices import sampler as sampling
from orchestrator.hosts.devices.hardware import POWER_CAP, SLOWDOWN, with_samples
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.devices.nvml import NvmlInventory
from orchestrator.hosts.devices.sampler import Sampler, sample


def cpu_uuid() -> str:
    return open_inventory("cpu").devices()[0].uuid


def drain_until(sampler: Sampler, count: int) -> list[DeviceSample]:
    """Samples as they come; fails by the test's own time limit."""
    samples: list[DeviceSample] = []
    while len(samples) < count:
        samples += sampler.drain()
        time.sleep(0.02)
    return samples


def test_cpu_host_is_sampled_by_another_process() -> None:
    before_ns = time.monotonic_ns()
    with Sampler("cpu", [cpu_uuid()], hz=10) as sampler:
        assert sampler._child is not None and sampler._child.pid != os.getpid()
        samples = drain_until(sampler, 3)
    stamps = [s.ns for s in samples]
    assert before_ns < stamps[0] and stamps == sorted(set(stamps))
    assert all(s.load is not None and s.used_bytes and s.device_uuid == cpu_uuid() for s in samples)
    assert all(s.power_mw is None and s.throttle_bits is None for s in samples)


def test_samples_wait_for_a_slow_reader_and_come_once() -> None:
    with Sampler("cpu", [cpu_uuid()], hz=10) as sampler:
        first = drain_until(sampler, 1)
        time.sleep(0.5)
        while len(later := sampler.drain()) < 2:  # on a busy host
            first += later
            time.sleep(0.5)
        sampler.stop()
        rest = sampler.drain()
    stamps = [s.ns for s in first + later + rest]
    assert stamps == sorted(set(stamps))


def test_every_device_is_sampled_and_processes_are_foreign_unless_ours() -> None:
    with open_inventory("simulated:foreign") as inventory:
        uuids = [device.uuid for device in inventory.devices()]
        occupied = {uuid: inventory.processes(uuid) for uuid in uuids}
    assert any(occupied.values())
    with Sampler("simulated:foreign", uuids, hz=10) as sampler:
        samples = drain_until(sampler, 8)[:8]
        assert {s.device_uuid: s.foreign_pids for s in samples} == occupied
        everybody = {pid for pids in occupied.values() for pid in pids or ()}
        while not (ours := sampler.drain(everybody)):
            time.sleep(0.02)
    assert all(s.foreign_pids == () for s in ours)


def test_no_rate_no_process() -> None:
    with Sampler("cpu", [cpu_uuid()], hz=0) as sampler:
        assert sampler._child is None
        assert sampler.drain() == []


@pytest.mark.parametrize("hz", [-1, 0.01, 50])
def test_rates_out_of_range(hz: float) -> None:
    with pytest.raises(UsageError, match=r"startup\.sample_hz"):
        Sampler("cpu", [], hz)


def test_sampler_ends_with_its_owner() -> None:
    code = (
        "import sys, time; from orchestrator.hosts.devices.sampler import Sampler;"
        "s = Sampler('cpu', [sys.argv[1]], 10); s.start();"
        "print(s._child.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, cpu_uuid()], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists() and _state(child) != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists() or _state(child) == "Z"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


class FakeNvml(NvmlInventory):
    """An NVML whose answers are scripted; the constructor's driver is not needed."""

    def __init__(self) -> None:
        self._handles = {"GPU-1": "handle"}

    def processes(self, uuid: str) -> tuple[int, ...]:
        return (41, 42)

    def memory_used(self, uuid: str) -> int:
        return 5_000_000_000


def test_gpu_fields_and_what_a_device_does_not_support(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = sampling.pynvml

    def unsupported(*_: Any) -> int:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(
        nvml, "nvmlDeviceGetClockInfo", lambda h, k: {nvml.NVML_CLOCK_SM: 1980, nvml.NVML_CLOCK_MEM: 3201}[k]
    )
    monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", lambda h: 412_000)
    monkeypatch.setattr(nvml, "nvmlDeviceGetTemperature", unsupported)
    monkeypatch.setattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda h: 0x4)
    monkeypatch.setattr(nvml, "nvmlDeviceGetUtilizationRates", lambda h: type("U", (), {"gpu": 97}))
    found = sample(FakeNvml(), "GPU-1")
    assert (found.sm_clock_mhz, found.memory_clock_mhz, found.power_mw) == (1980, 3201, 412_000)
    assert (found.temperature_c, found.throttle_bits, found.load) == (None, 4, 97.0)
    assert (found.used_bytes, found.foreign_pids) == (5_000_000_000, (41, 42))


# -- joining -------------------------------------------------------------------------------------------------------


@pytest.fixture
def request_of(wire: Any) -> Request:
    """A real answer of some 40 ms."""
    answered: Request = wire.play(*wire.stream(wire.text("a", [1], "stop"), wire.usage(1))).request
    assert answered.admissible
    return answered


def at(request: Request, share: float, **fields: Any) -> DeviceSample:
    """A sample taken at this share of the request's duration."""
    ns = round(request.send_ns + share * (request.end_ns - request.send_ns))
    empty = dict.fromkeys((field.name for field in dataclasses.fields(DeviceSample)), None)
    return DeviceSample(**{**empty, "ns": ns, "device_uuid": "GPU-1", "foreign_pids": (), **fields})


def test_clocks_come_from_the_requests_own_time(request_of: Request) -> None:
    before, after = (at(request_of, share, sm_clock_mhz=300, throttle_bits=SLOWDOWN) for share in (-0.1, 1.1))
    during = [at(request_of, share, sm_clock_mhz=mhz, throttle_bits=POWER_CAP) for share, mhz in
              ((0.0, 1980), (0.5, 1500), (1.0, 1950))]  # fmt: skip
    joined = with_samples(request_of, [before, *during, after])
    assert (joined.min_sm_clock_mhz, joined.median_sm_clock_mhz, joined.throttle_bits) == (1500, 1950, POWER_CAP)
    assert (joined.admissible, joined.reasons) == (True, ())


def test_nobody_looked(request_of: Request) -> None:
    joined = with_samples(request_of, [at(request_of, -2.0, sm_clock_mhz=1980)])
    assert joined == request_of
    assert joined.median_sm_clock_mhz is None


@pytest.mark.parametrize("bit", [0x08, 0x20, 0x40, 0x80])
def test_slowdown_excludes(request_of: Request, bit: int) -> None:
    """Cases 49 and 50: the request stays, with its reason."""
    joined = with_samples(request_of, [at(request_of, 0.5, throttle_bits=bit | POWER_CAP)])
    assert (joined.admissible, joined.reasons) == (False, (Reason.THROTTLE,))
    assert joined.throttle_bits == bit | POWER_CAP


def test_foreign_process_excludes(request_of: Request) -> None:
    joined = with_samples(request_of, [at(request_of, 0.5, foreign_pids=(77,))])
    assert (joined.admissible, joined.reasons) == (False, (Reason.FOREIGN_PROCESS,))


def test_cpu_clocks_stay_in_the_samples(request_of: Request) -> None:
    joined = with_samples(request_of, [at(request_of, 0.5, sm_clock_mhz=800, load=3.0)])
    assert joined == request_of

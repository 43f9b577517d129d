"""The doctor's rows and `campaign lease`: what is wrong is found, named and given a remedy."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from campaigns.errors import LeaseTimeout, NoDevice, WorldError
from campaigns.records import Process
from orchestrator.cli import main
from orchestrator.diagnosis import doctor
from orchestrator.diagnosis.doctor import Level, Row, Scope, examine
from orchestrator.diagnosis.net import Listener, listening
from orchestrator.hosts.devices.cpu import CpuInventory
from orchestrator.hosts.lease import acquire, name_holder
from orchestrator.hosts.locks import LockFolder, Mark
from orchestrator.hosts.process import boot_id, identify


def rows(check: Any, scope: Scope) -> list[Row]:
    return list(check(scope))


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    return Scope(tmp_path / "outputs", str(tmp_path / "locks"), inventory="cpu", with_ray=False)


def test_a_broken_check_is_a_fault_and_the_others_go_on(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(scope: Scope) -> Iterator[Row]:
        yield Row("first", Level.OK, "fine")
        raise KeyError("x")

    def refusal(scope: Scope) -> Iterator[Row]:
        raise WorldError("The machine said no.")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (("bug", bug), ("refusal", refusal), ("disk", doctor._disk)))
    found = list(examine(scope))
    assert [(row.subject, row.level) for row in found] == [
        ("first", Level.OK),
        ("bug", Level.FAULT),
        ("refusal", Level.FAULT),
        ("disk", Level.OK),
    ]
    assert "KeyError('x')" in found[1].found and found[2].found == "The machine said no."


@pytest.mark.acceptance
def test_torch_is_looked_at_from_a_process_of_its_own(scope: Scope) -> None:
    torch, cuda = rows(doctor._torch, scope)
    assert torch.level is Level.OK and torch.found[0].isdigit()
    assert cuda.subject == "CUDA"


def test_a_full_disk(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    for free, level in ((10 << 30, Level.OK), (2 << 30, Level.WARNING), (100 << 20, Level.FAULT)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage(0, 0, free))
        [row] = rows(doctor._disk, scope)
        assert row.level is level and bool(row.remedy) is (level is not Level.OK)


def test_a_busy_cpu(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = len(os.sched_getaffinity(0))
    for load, level in ((0.0, Level.OK), (cpus * 0.9, Level.WARNING)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert rows(doctor._devices, scope)[-1].level is level


def test_devices_and_their_troubles(scope: Scope, tmp_path: Path) -> None:
    troubled = Scope(tmp_path, str(tmp_path / "locks"), inventory="simulated:foreign")
    found = rows(doctor._devices, troubled)
    assert [row.found for row in found if row.level is Level.WARNING] == [
        "Device 0 (GPU-51300000-0000-4000-8000-000000000000) is used by process 4194304"
    ]
    assert sum("Simulated GPU, 80 GiB" in row.found for row in found) == 8


def test_locks_held_and_marked(scope: Scope) -> None:
    folder, inventory = LockFolder(scope.lock_dir), CpuInventory()
    held = acquire(folder, inventory, inventory.devices(), name_holder("campaign c0ffee"), 0.0, idle=True)
    folder.set_mark(held.uuids[0], Mark("memory in use", (), "boot", "now", "ada"))
    found = rows(doctor._locks, scope)
    assert [row.level for row in found] == [Level.OK, Level.WARNING, Level.WARNING]
    assert "held by campaign c0ffee" in found[1].found and "memory in use" in found[2].found
    held.release(folder, inventory, ())


def test_the_sandbox_row_says_how_strong_it_is(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    for refused, level in (({}, Level.OK), ({"namespaces": "no"}, Level.WARNING)):
        monkeypatch.setattr(doctor.Sandbox, "refusal", lambda self, refused=refused: refused.get(self.mode, ""))
        [row] = rows(doctor._sandbox, scope)
        assert row.level is level


def test_the_tokenizer_of_the_shipped_checkpoint(scope: Scope, tmp_path: Path) -> None:
    [row] = rows(doctor._tokenizer, scope)
    assert row.level is Level.OK
    [row] = rows(doctor._tokenizer, Scope(tmp_path, model=tmp_path))
    assert row.level is Level.WARNING and str(tmp_path) in row.found


def test_listening_sockets_of_a_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as local, socket.create_server(("", 0)) as everywhere:
        ports = local.getsockname()[1], everywhere.getsockname()[1]
        found = {listener.port: listener for listener in listening([os.getpid()])}
    assert found[ports[0]].is_local and not found[ports[1]].is_local
    assert str(found[ports[1]]) == f"*:{ports[1]}"
    assert not {listener.port for listener in listening([os.getpid()])} & set(ports)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_listening_on_ipv6() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert Listener("::1", server.getsockname()[1]) in listening([os.getpid()])


def test_a_device_that_is_hot_slow_in_part_and_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.diagnosis.gpu import gpu_rows
    from orchestrator.hosts.devices.device import Device
    from orchestrator.hosts.devices.nvml import NvmlInventory

    def unsupported(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    answers: dict[str, Any] = {
        "nvmlDeviceGetClockInfo": lambda h, clock: 1200,
        "nvmlDeviceGetMaxClockInfo": lambda h, clock: 1980,
        "nvmlDeviceGetPowerUsage": unsupported,
        "nvmlDeviceGetEnforcedPowerLimit": lambda h: 700000,
        "nvmlDeviceGetTemperature": lambda h, sensor: 91,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: 0x40,
        "nvmlDeviceGetPersistenceMode": lambda h: 0,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    inventory = NvmlInventory.__new__(NvmlInventory)
    monkeypatch.setattr(inventory, "handle", lambda uuid: 0, raising=False)
    monkeypatch.setattr(inventory, "processes", lambda uuid: (os.getpid(), 4194304), raising=False)
    found = list(gpu_rows(inventory, Device("MIG-1", 403, "x", 1, gpu=3)))
    assert [row.found for row in found if row.level is Level.OK] == ["SM 1200 of 1980 MHz, memory 1200 of 1980 MHz"]
    warnings = " | ".join(row.found for row in found if row.level is Level.WARNING)
    for part in ("4194304 (of another", "91 °C", "0x40", "a MIG instance of GPU 3", "persistence mode is off"):
        assert part in warnings


def test_the_command_prints_rows_and_ends_with_5_on_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (("disk", doctor._disk), ("locks", doctor._locks)))
    words = ["doctor", "--no-ray", "--outputs", str(tmp_path), "--lock-dir"]
    assert main([*words, str(tmp_path / "locks")]) == 0
    assert capsys.readouterr().out.startswith("ok       disk       ")
    (tmp_path / "file").write_text("")
    assert main([*words, str(tmp_path / "file"), "--json"]) == 5
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["level"] for line in lines] == ["ok", "fault"]


def test_lease_list_and_clear(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, locks = tmp_path / "host.json", str(tmp_path / "locks")
    scenario.write_text('{"order": [1, 0]}')
    where = ["--inventory", f"simulated:{scenario}", "--lock-dir", locks]
    folder = LockFolder(locks)
    first, second = ("GPU-51300000-0000-4000-8000-00000000000" + str(n) for n in (1, 0))
    me = identify(os.getpid())
    assert me is not None
    folder.set_mark(first, Mark("still there", (Process(me.pid, me.start_ticks),), boot_id(), "now", "ada"))
    fd = folder.try_lock(second, name_holder("campaign c0ffee"))
    assert main(["lease", "list", *where]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert f"{first}  Device 0" in shown[0] and "still there" in shown[0]
    assert f"{second}  held by campaign c0ffee of" in shown[1]

    assert main(["lease", "clear", first, *where]) == NoDevice.exit_code
    assert f"still has process {me.pid} of ada" in capsys.readouterr().err
    assert folder.mark(first) is not None
    assert main(["lease", "clear", first, "--force", *where]) == 0
    assert folder.mark(first) is None
    assert main(["lease", "clear", second, *where]) == LeaseTimeout.exit_code
    assert "a lock cannot be cleared" in capsys.readouterr().err
    assert fd is not None
    os.close(fd)

"""SIGKILL of the driver or the raylet in mid-request, and ctrl-C: no server, no daemon, no lock, no recorder is left.

(The actor's death is in test_cluster.py, which has a Ray at hand.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.hosts import reaper
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.locks import LockFolder

DRIVER = Path(__file__).with_name("kill_driver.py")
WITHIN_S = 30.0

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]


@dataclass
class Driven:
    """A driver in mid-request with all its processes."""

    driver: subprocess.Popen[str]
    server: int
    daemon: int
    locks: LockFolder

    def pid_of(self, name: bytes) -> int:
        [pid] = [pid for pid in reaper.descendants(self.driver.pid) if name in command_of(pid)]
        return pid

    def left(self, also: list[int]) -> list[int]:
        return [pid for pid in (self.server, self.daemon, *also) if reaper.start_ticks(pid) is not None]

    def is_held(self) -> bool:
        [device] = open_inventory("simulated:one").devices()
        return self.locks.is_held(device.uuid)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


def is_agent(pid: int) -> bool:
    """One of Ray's own that end when they like: by its program, since the head's and the raylet's options name them."""
    return b"agent" in command_of(pid).partition(b" --")[0].lower()


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + WITHIN_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    daemon = tmp_path / "daemon"
    options = ["--stubborn", "--daemon", str(daemon), "--token-pause", "60"]
    command = [sys.executable, str(DRIVER), str(tmp_path), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as driver:
        assert driver.stdout is not None
        server = int(driver.stdout.readline())
        time.sleep(0.5)  # into the request
        yield Driven(driver, server, int(daemon.read_text()), LockFolder(str(tmp_path / "locks")))
        driver.kill()


def test_the_death_of_the_driver_leaves_nothing(driven: Driven) -> None:
    ours = [pid for pid in reaper.descendants(driven.driver.pid) if not is_agent(pid)]
    assert len(ours) >= 4 and driven.is_held()  # Ray's head and raylet, the actor, its recorder
    driven.driver.kill()
    assert eventually(lambda: not driven.left(ours)), [command_of(pid) for pid in driven.left(ours)]
    assert eventually(lambda: not driven.is_held())


def test_the_death_of_the_raylet_leaves_nothing_and_is_told(driven: Driven) -> None:
    raylet = driven.pid_of(b"/raylet/raylet ")
    below = [pid for pid in reaper.descendants(raylet) if not is_agent(pid)]
    os.kill(raylet, signal.SIGKILL)
    assert eventually(lambda: not driven.left(below)), [command_of(pid) for pid in driven.left(below)]
    output, _ = driven.driver.communicate(timeout=60)
    sentence, reason = output.splitlines()
    assert "is gone (its process raylet ended)" in sentence and reason == "interrupted"
    assert driven.driver.returncode == 0
    assert not driven.is_held()


def test_ctrl_c_ends_everything_in_order(driven: Driven) -> None:
    ours = reaper.descendants(driven.driver.pid)
    os.killpg(driven.driver.pid, signal.SIGINT)  # as a terminal does: Ray's processes get it too
    output, _ = driven.driver.communicate(timeout=60)
    assert output.endswith("KeyboardInterrupt\n") and driven.driver.returncode == -signal.SIGINT
    assert eventually(lambda: not driven.left(ours)), [command_of(pid) for pid in driven.left(ours)]
    assert not driven.is_held()

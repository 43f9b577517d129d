"""A cluster on one machine: every node a raylet in a network namespace of its own, with an address and a host name.

Needs root, `ip` and `unshare`; `refusal` says what is missing. Nothing of it outlives the context manager.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

RAY = Path(sys.executable).with_name("ray")
BRIDGE, NET = "flbr0", "10.213.7"
PORT = 26379
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_worker_niceness": "0"}


def refusal() -> str:
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        return "network namespaces need root, ip and unshare"
    made = _ip("link", "add", BRIDGE, "type", "bridge", check=False)
    _ip("link", "del", BRIDGE, check=False)
    return "" if made else "this kernel lets nobody make a bridge"


@dataclass
class Node:
    """`name` is its host name and its namespace."""

    number: int
    setup: str = ""  # shell commands run first, in a mount namespace of its own
    clock: tuple[str, ...] = ()  # of `unshare`, as --monotonic=100
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"fleet{self.number}"

    @property
    def address(self) -> str:
        return f"{NET}.{10 + self.number}"

    def within(self, *command: str | Path) -> list[str]:
        """The command, run on this node."""
        script = f'set -e; hostname {self.name}; {self.setup or ":"}; exec "$@"'
        own = ["unshare", "-u", "-m", *(["-T", "--fork", *self.clock] if self.clock else [])]
        return ["ip", "netns", "exec", self.name, *own, "sh", "-c", script, "sh", *map(str, command)]

    def pids(self) -> list[int]:
        told = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True)
        return [int(pid) for pid in told.stdout.split()]

    def kill(self) -> None:
        """As if its power had gone."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if self.process is not None:
            self.process.wait()

    def cut(self) -> None:
        """As if its cable had been drawn."""
        _ip("link", "set", f"flv{self.number}", "down")

    def commands(self) -> list[str]:
        """Of all that runs there."""
        found = []
        for pid in self.pids():
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found


@dataclass
class Fleet:
    """A head that runs nothing, in the machine's own namespace, and nodes."""

    folder: Path
    nodes: dict[int, Node] = field(default_factory=dict)
    head: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{NET}.1:{PORT}"

    def start_head(self) -> None:
        words = ["--head", f"--port={PORT}", f"--node-ip-address={NET}.1", "--include-dashboard=false", "--num-cpus=0"]
        log = self.folder / "head.log"
        self.head = _start([RAY, "start", *words, "--num-gpus=0", "--no-monitor", f"--temp-dir={self.folder}"], log)
        assert _stands(self.head, log), log.read_text()[-2000:]

    def add(self, number: int, gpus: int, setup: str = "", clock: tuple[str, ...] = ()) -> Node:
        node = self.nodes[number] = Node(number, setup, clock)
        veth = f"flv{number}"
        _ip("link", "del", veth, check=False)  # what a killed run has left
        _ip("netns", "del", node.name, check=False)
        _ip("netns", "add", node.name)
        _ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", node.name)
        for words in (("link", "set", veth, "master", BRIDGE), ("link", "set", veth, "up")):
            _ip(*words)
        for words in (
            ("addr", "add", f"{node.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", node.name, *words)
        words = [f"--address={self.address}", f"--node-ip-address={node.address}", "--num-cpus=1", f"--num-gpus={gpus}"]
        for _ in range(4):  # Ray gives up after 30 s, which a busy machine may need
            node.process = _start(node.within(RAY, "start", *words), self.folder / f"{node.name}.log")
            if _stands(node.process, self.folder / f"{node.name}.log"):
                return node
            node.kill()
        raise AssertionError((self.folder / f"{node.name}.log").read_text()[-2000:])

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()
            _ip("netns", "del", node.name, check=False)
        if self.head is not None:
            self.head.send_signal(signal.SIGTERM)
            try:
                self.head.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.head.pid, signal.SIGKILL)


@contextmanager
def fleet(gpus: Sequence[int]) -> Iterator[Fleet]:
    """One node for each number of GPUs."""
    _ip("link", "del", BRIDGE, check=False)
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{NET}.1/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    made = Fleet(Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp")))
    try:
        made.start_head()
        for number, count in enumerate(gpus, start=1):
            made.add(number, count)
        yield made
    finally:
        made.end()
        _ip("link", "del", BRIDGE, check=False)
        shutil.rmtree(made.folder, ignore_errors=True)


def _start(command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        words = [*map(str, command), "--object-store-memory=80000000", "--include-log-monitor=false", "--block"]
        environment = {**os.environ, **_ENVIRONMENT}
        return subprocess.Popen(words, env=environment, stdout=file, stderr=file, start_new_session=True)


def _stands(process: subprocess.Popen[bytes], log: Path) -> bool:
    """False where Ray gave up."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if b"will now block forever" in log.read_bytes():
            return True
        time.sleep(0.2)
    return False


def _ip(*words: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *words], check=check, capture_output=not check).returncode == 0

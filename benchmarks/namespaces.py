"""A cluster on one machine: every node a raylet in a network namespace of its own, with an address and a host name.

Needs root, `ip` and `unshare`; `refusal` says what is missing. Nothing of it outlives the context manager, and what a
killed run has left is cleared by the next. Names, addresses and the port are this process's: others may run beside it.
"""

from __future__ import annotations

import os
import re
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
_RUN = os.getpid()
BRIDGE, NET, PORT = f"flb{_RUN}", f"10.213.{_RUN % 250}", 20000 + _RUN % 10000
_OURS = re.compile(r"(?:flb|fleet\d+-)(\d+)")  # bridges and namespaces, with the process that made them
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_worker_niceness": "0"}


def refusal() -> str:
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        return "network namespaces need root, ip and unshare"
    made = _ip("link", "add", BRIDGE, "type", "bridge", check=False)
    _ip("link", "del", BRIDGE, check=False)
    return "" if made else "this kernel lets nobody make a bridge"


@dataclass
class Node:
    """`name` is its host name."""

    number: int
    setup: str = ""  # shell commands run first, in a mount namespace of its own
    clock: tuple[str, ...] = ()  # of `unshare`, as --monotonic=100
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"fleet{self.number}"

    @property
    def namespace(self) -> str:
        return f"{self.name}-{_RUN}"

    @property
    def veth(self) -> str:
        return f"fl{_RUN}v{self.number}"

    @property
    def address(self) -> str:
        return f"{NET}.{10 + self.number}"

    def within(self, *command: str | Path) -> list[str]:
        """The command, run on this node."""
        script = f'set -e; hostname {self.name}; {self.setup or ":"}; exec "$@"'
        own = ["unshare", "-u", "-m", *(["-T", "--fork", *self.clock] if self.clock else [])]
        return ["ip", "netns", "exec", self.namespace, *own, "sh", "-c", script, "sh", *map(str, command)]

    def pids(self) -> list[int]:
        return _pids(self.namespace)

    def kill(self) -> None:
        """As if its power had gone."""
        _kill_all(self.namespace)
        if self.process is not None:
            self.process.wait()

    def cut(self) -> None:
        """As if its cable had been drawn."""
        _ip("link", "set", self.veth, "down")

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
        node = self.nodes[number] = Node(number, "; ".join(filter(None, (self._own_disk(number), setup))), clock)
        _ip("link", "del", node.veth, check=False)  # of a node of that number that was killed
        _ip("netns", "del", node.namespace, check=False)
        _ip("netns", "add", node.namespace)
        _ip("link", "add", node.veth, "type", "veth", "peer", "name", "eth0", "netns", node.namespace)
        for words in (("link", "set", node.veth, "master", BRIDGE), ("link", "set", node.veth, "up")):
            _ip(*words)
        for words in (
            ("addr", "add", f"{node.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", node.namespace, *words)
        words = [f"--address={self.address}", f"--node-ip-address={node.address}", "--num-cpus=1", f"--num-gpus={gpus}"]
        for _ in range(4):  # Ray gives up after 30 s, which a busy machine may need
            node.process = _start(node.within(RAY, "start", *words), self.folder / f"{node.name}.log")
            if _stands(node.process, self.folder / f"{node.name}.log"):
                return node
            node.kill()
        raise AssertionError((self.folder / f"{node.name}.log").read_text()[-2000:])

    def _own_disk(self, number: int) -> str:
        """Commands. Ray deletes what it finds where it unpacks code, and these nodes have one folder for a session."""
        there = Path(tempfile.mkdtemp(prefix=f"node{number}-", dir=self.folder))
        return f"mount --bind {there} {(self.folder / 'session_latest').resolve()}/runtime_resources"

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()
            _ip("netns", "del", node.namespace, check=False)
        if self.head is not None:
            self.head.send_signal(signal.SIGTERM)
            try:
                self.head.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.head.pid, signal.SIGKILL)


@contextmanager
def fleet(gpus: Sequence[int]) -> Iterator[Fleet]:
    """One node for each number of GPUs."""
    _clear_left()
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


def _clear_left() -> None:
    """Of runs whose process is gone."""
    for kind, words in (("netns", ("netns", "list")), ("link", ("-brief", "link"))):
        told = subprocess.run(["ip", *words], capture_output=True, text=True).stdout
        for name in (line.split()[0] for line in told.splitlines()):
            made = _OURS.fullmatch(name)
            if made and not Path(f"/proc/{made[1]}").exists():
                if kind == "netns":
                    _kill_all(name)
                _ip(kind, "del", name, check=False)


def _pids(namespace: str) -> list[int]:
    told = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    return [int(pid) for pid in told.stdout.split()]


def _kill_all(namespace: str) -> None:
    while pids := _pids(namespace):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


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

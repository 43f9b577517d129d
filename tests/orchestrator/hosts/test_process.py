"""Trees of processes: nothing outlives a stop or the death of whoever started it. Real processes, real kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import CannotExecute, ServerFailed
from campaigns.records import Process
from orchestrator.hosts import reaper
from orchestrator.hosts.process import TREE_MARK, ServerTree, alive, identify

SMALL_SERVER = Path(__file__).parents[1] / "small_server.py"
HOLDER = """
import os, sys, time
from pathlib import Path
from orchestrator.hosts.process import ServerTree
tree = ServerTree(sys.argv[2:], os.environ, Path.cwd(), Path("log"), keep_fds=[int(sys.argv[1])], grace_s=0.3)
print(tree.pid, flush=True)
time.sleep(600)
"""


def eventually(condition: Callable[[], object], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def pid_in(path: Path) -> int:
    assert eventually(path.exists)
    return int(path.read_text())


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def gone(pid: int) -> bool:
    return reaper.start_ticks(pid) is None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ServerTree]]:
    trees: list[ServerTree] = []

    def starter(*argv: str, **options: object) -> ServerTree:
        trees.append(ServerTree(argv, dict(os.environ), tmp_path, tmp_path / "log", grace_s=0.3, **options))
        return trees[-1]

    yield starter
    for tree in trees:
        assert tree.stop() == ()


def stubborn_server(daemon: Path) -> tuple[str, ...]:
    return (sys.executable, str(SMALL_SERVER), "0", "--stubborn", "--daemon", str(daemon))


def test_a_stubborn_daemon_is_seen_and_does_not_survive_stop(start: Callable[..., ServerTree], tmp_path: Path) -> None:
    tree = start(*stubborn_server(tmp_path / "daemon"))
    daemon = pid_in(tmp_path / "daemon")
    server, *children = tree.processes()
    assert (server.pid, server.role) == (tree.pid, "server")
    assert daemon in [child.pid for child in children]
    assert os.getsid(daemon) not in (os.getsid(tree.pid), os.getsid(0))
    assert tree.stop() == ()
    assert gone(tree.pid) and gone(daemon)
    assert tree.exit_code == -signal.SIGKILL


def test_a_server_that_hears_term_is_not_killed(start: Callable[..., ServerTree], tmp_path: Path) -> None:
    tree = start(
        "/bin/sh", "-c", f"trap 'echo bye > {tmp_path}/bye; exit 4' TERM; touch {tmp_path}/up; sleep 60 & wait"
    )
    assert eventually((tmp_path / "up").exists)
    assert tree.stop() == ()
    assert tree.exit_code == 4
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_exit_is_seen_with_code_and_log(start: Callable[..., ServerTree]) -> None:
    tree = start("/bin/sh", "-c", "echo one; echo two >&2; exit 3")
    assert eventually(lambda: tree.exit_code is not None)
    assert tree.exit_code == 3
    assert tree.log_tail(1) == "two"
    assert tree.processes() == ()


def test_an_exit_before_anybody_listens_is_seen(
    start: Callable[..., ServerTree], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a loaded host the server may be gone before its start has been heard of: both reports come as one."""
    start_reaper = ServerTree._start_reaper

    def slowly(tree: ServerTree, *args: Any) -> tuple[int, int]:
        fds = start_reaper(tree, *args)
        assert eventually((tmp_path / "leaving").exists)
        time.sleep(0.3)
        return fds

    monkeypatch.setattr(ServerTree, "_start_reaper", slowly)
    tree = start("/bin/sh", "-c", f"touch {tmp_path}/leaving; exit 3")
    assert tree.exit_code == 3
    assert tree.processes() == ()


def test_a_child_that_outlives_its_server_is_ended_by_stop(start: Callable[..., ServerTree], tmp_path: Path) -> None:
    tree = start(sys.executable, str(SMALL_SERVER), "0", "--daemon", str(tmp_path / "daemon"), "--exit", "5")
    daemon = pid_in(tmp_path / "daemon")
    assert eventually(lambda: tree.exit_code == 5)
    assert not gone(daemon)
    assert tree.stop() == ()
    assert gone(daemon)


@pytest.mark.parametrize("killed", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_starter_ends_the_tree_before_the_lock_falls(tmp_path: Path, killed: int) -> None:
    read_fd, write_fd = os.pipe()  # stands for a lock: its other end closes with the last holder
    command = [sys.executable, "-c", HOLDER, str(write_fd), *stubborn_server(tmp_path / "daemon")]
    with subprocess.Popen(command, cwd=tmp_path, pass_fds=[write_fd], stdout=subprocess.PIPE) as holder:
        os.close(write_fd)
        assert holder.stdout is not None
        server, daemon = int(holder.stdout.readline()), pid_in(tmp_path / "daemon")
        assert not [fd for fd in Path(f"/proc/{server}/fd").iterdir() if "pipe" in str(fd.readlink())]
        holder.send_signal(killed)
    assert os.read(read_fd, 1) == b""  # blocks until nobody holds the lock
    assert gone(server) and gone(daemon)
    os.close(read_fd)


def test_the_tree_of_a_killed_reaper_is_found_again(start: Callable[..., ServerTree], tmp_path: Path) -> None:
    tree = start(*stubborn_server(tmp_path / "daemon"))
    daemon = pid_in(tmp_path / "daemon")
    os.kill(int(reaper.stat_fields(tree.pid)[1]), signal.SIGKILL)
    assert eventually(lambda: tree.exit_code is not None)
    assert not gone(daemon)
    assert tree.stop() == ()
    assert gone(daemon)


def test_term_to_the_reaper_ends_the_tree(start: Callable[..., ServerTree], tmp_path: Path) -> None:
    tree = start(*stubborn_server(tmp_path / "daemon"))
    daemon = pid_in(tmp_path / "daemon")
    os.kill(int(reaper.stat_fields(tree.pid)[1]), signal.SIGTERM)
    assert eventually(lambda: gone(daemon) and gone(tree.pid))


def test_the_server_gets_default_signals_and_its_own_session(start: Callable[..., ServerTree]) -> None:
    script = (
        "import os, signal; print(os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,"
        "signal.pthread_sigmask(signal.SIG_BLOCK, []), sorted(map(int, os.listdir('/proc/self/fd')))[:3],"
        f"len(os.listdir('/proc/self/fd')), len(os.environ['{TREE_MARK}']))"
    )
    tree = start(sys.executable, "-c", script)
    assert eventually(lambda: tree.exit_code == 0)
    assert tree.log_tail() == "True True set() [0, 1, 2] 4 32"  # the fourth lists the folder


def test_failures_to_start_are_sentences(start: Callable[..., ServerTree], tmp_path: Path) -> None:
    before = num_descriptors()
    with pytest.raises(CannotExecute, match=r"could not be started: no-such-server: .*No such file"):
        start("no-such-server")
    with pytest.raises(ServerFailed, match="could not be started in"):
        ServerTree(["true"], {}, tmp_path / "nowhere", tmp_path / "log")
    assert num_descriptors() == before


def test_a_reused_pid_is_another_process() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert alive([me]) == (me,)
    assert alive([Process(me.pid, me.start_ticks + 1)]) == ()


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen(["true"])
    assert eventually(lambda: identify(child.pid) is None)
    assert child.wait() == 0

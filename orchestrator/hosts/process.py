"""One server as a tree of processes: started below a reaper, identified beyond PID reuse, stopped with proof.

A process is named by PID and start time. The tree keeps every process it ever saw, so that `stop` can say which of
them outlived it. Knows nothing of HTTP, arms or devices.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from campaigns.errors import CannotExecute, ServerFailed
from campaigns.records import Process
from orchestrator.hosts import reaper

TREE_MARK = "CAMPAIGN_SERVER_TREE"  # finds a tree again whose reaper was killed; changes nothing in a server
_KILL_S = 10.0  # beyond the grace: how long the kernel may take to end killed processes
_SPAWN_S = 30.0
_HOST_PIDS = 0xEFFFFFFC  # PROC_PID_INIT_INO of the kernel: the inode of the first namespace of PIDs


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def counts_as_the_host() -> bool:
    """Whether PIDs here are those of the host, which are what drivers count; they are not in most containers."""
    try:
        return Path("/proc/self/ns/pid").readlink() == Path(f"pid:[{_HOST_PIDS}]")
    except OSError:
        return False


def identify(pid: int, role: str = "") -> Process | None:
    """None for a process that is gone or a zombie."""
    ticks = reaper.start_ticks(pid)
    return None if ticks is None else Process(pid, ticks, role)


def command_name(pid: int) -> str:
    """The kernel's short name of a process; empty for one that cannot be seen from here."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def alive(processes: Iterable[Process]) -> tuple[Process, ...]:
    return tuple(p for p in processes if reaper.start_ticks(p.pid) == p.start_ticks)


def die_with_parent() -> None:
    """SIGKILL for the calling process as soon as its parent is gone, or now if that has happened already."""
    parent = os.getppid()
    reaper.prctl(reaper.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class ServerTree:
    """Starts on construction; `stop` may be called any number of times and from another thread.

    `keep_fds` (the lease's locks) are held by the reaper, not by the server, until the last process is gone. Standard
    output and error go to `log_path`. Raises ServerFailed where nothing starts, CannotExecute where it is the command's
    fault.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        log_path: Path,
        keep_fds: Sequence[int] = (),
        grace_s: float = 10.0,
    ) -> None:
        self._grace_s = grace_s
        self._log_path = log_path
        self._mark = uuid.uuid4().hex
        self._seen: dict[int, Process] = {}
        self._start: dict[str, Any] = {}  # what the reaper reported of it
        self._failure = ""
        self._exit_code: int | None = None
        self._buffer = b""
        self._reaper_pid = -1
        self._control_fd, self._status_fd = self._start_reaper(argv, env, cwd, keep_fds)
        self._reaper_pid, self.pid = self._await_start()

    def _start_reaper(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, keep_fds: Sequence[int]
    ) -> tuple[int, int]:
        control_read, control_write = os.pipe()
        status_read, status_write = os.pipe()
        script = [reaper.__file__, str(control_read), str(status_write), str(self._grace_s), "--"]
        try:
            with self._log_path.open("ab") as log:
                starter = subprocess.Popen(
                    [sys.executable, "-I", "-S", *script, *argv],
                    env={**env, TREE_MARK: self._mark},
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(control_read, status_write, *keep_fds),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(control_write)
            os.close(status_read)
            raise ServerFailed(f"The server could not be started in {cwd}: {error}.") from error
        finally:
            os.close(control_read)
            os.close(status_write)
        starter.wait()
        return control_write, status_read

    def _await_start(self) -> tuple[int, int]:
        deadline = time.monotonic() + _SPAWN_S
        while not (self._start or self._failure) and self._status_fd >= 0 and time.monotonic() < deadline:
            self._listen(0.2)
        if not self._start:
            self.stop()
            if self._failure:
                raise CannotExecute(
                    f"The server could not be started: {self._failure}; name a command that can be executed."
                )
            raise ServerFailed(f"The server's reaper did not start; see {self._log_path}.")
        reaper_pid, pid, ticks = (int(self._start[name]) for name in ("reaper", "pid", "start_ticks"))
        self._seen[pid] = Process(pid, ticks, "server")
        return reaper_pid, pid

    @property
    def exit_code(self) -> int | None:
        """Of the server's first process: None while it runs, negative for a signal."""
        self._listen(0.0)
        return self._exit_code

    def _listen(self, wait_s: float) -> None:
        """Take in all that the reaper has said. A server that ends at once says so beside the news of its start."""
        if self._status_fd < 0 or not select.select([self._status_fd], [], [], wait_s)[0]:
            return
        chunk = os.read(self._status_fd, 65536)
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for report in map(json.loads, lines):
            self._failure = report.get("failed", self._failure)
            self._exit_code = report.get("exit", self._exit_code)
            if "pid" in report:
                self._start = report
        if not chunk:
            os.close(self._status_fd)
            self._status_fd = -1
            if self._exit_code is None:
                self._exit_code = -signal.SIGKILL  # the reaper is gone, and the server went with it

    def processes(self) -> tuple[Process, ...]:
        """The tree as it is now: the server first, then everything below it."""
        for pid in {*reaper.descendants(self._reaper_pid), *self._marked()} - {*self._seen, self._reaper_pid}:
            if process := identify(pid, "child"):
                self._seen[pid] = process
        return alive(self._seen.values())

    def _marked(self) -> list[int]:
        mark = f"{TREE_MARK}={self._mark}".encode()
        return [pid for pid in reaper.all_pids() if mark in _environ(pid)]

    def stop(self) -> tuple[Process, ...]:
        """TERM, grace, KILL, scan; returns what is still alive. Takes at most the grace and ten seconds."""
        if self._control_fd >= 0:
            os.close(self._control_fd)
            self._control_fd = -1
        deadline = time.monotonic() + self._grace_s + _KILL_S
        while self._status_fd >= 0 and time.monotonic() < deadline:
            self._listen(0.1)
        while (left := self.processes()) and time.monotonic() < deadline:
            _kill(left)  # only where the reaper itself was killed
            time.sleep(0.05)
        return left

    def log_tail(self, lines: int = 12) -> str:
        with suppress(OSError), self._log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 16384))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        return ""


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _kill(processes: Iterable[Process]) -> None:
    for process in alive(processes):
        with suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)

"""Runs one server and leaves nothing of it behind, whoever dies first: server, actor, raylet or driver.

    python -I -S reaper.py CONTROL_FD STATUS_FD GRACE_S -- COMMAND…

A script of its own with the standard library only. It forks away from its starter (Ray kills the direct children of a
dying worker), opens a session, becomes the subreaper of everything below it, so that a grandchild that daemonised is
still its own, and starts COMMAND in a further session. It ends the tree when CONTROL_FD reaches end of file (the
starter closed it or died) or on SIGTERM: TERM to all, GRACE_S of patience, then KILL until no child is left.

STATUS_FD carries JSON lines: {"reaper", "pid", "start_ticks"}, later {"exit"}, or {"failed"} when COMMAND could not be
executed; its end of file says that nothing is left. Descriptors that the starter passes besides these two (the lease's
locks) stay open here until then and are closed in the server.

It knows nothing of campaigns, devices or HTTP.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
_DEAD = "ZX"
_START_TICKS = 19  # field 22 of /proc/PID/stat, counted from the state


def prctl(option: int, value: int) -> None:
    """Linux prctl(2) with one argument; raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def all_pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def stat_fields(pid: int) -> list[str]:
    """Fields 3… of /proc/PID/stat (state first); empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and parentheses


def start_ticks(pid: int) -> int | None:
    """Start time in clock ticks since boot (field 22), None for a process that is gone or a zombie."""
    fields = stat_fields(pid)
    return int(fields[_START_TICKS]) if fields and fields[0] not in _DEAD else None


def descendants(ancestor: int) -> list[int]:
    """Every living process below `ancestor`, parents before children."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid in all_pids():
        if fields := stat_fields(pid):
            children[int(fields[1])].append(pid)
    found, queue = [], [ancestor]
    while queue:
        below = children[queue.pop(0)]
        found += below
        queue += below
    return [pid for pid in found if start_ticks(pid) is not None]


class Reaper:
    def __init__(self, control_fd: int, status_fd: int, grace_s: float) -> None:
        self._control_fd = control_fd
        self._status_fd = status_fd
        self._grace_s = grace_s
        self._server_pid = 0
        self._wake_fd, signal_fd = os.pipe()
        os.set_blocking(self._wake_fd, False)
        os.set_blocking(signal_fd, False)
        signal.set_wakeup_fd(signal_fd)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def run(self, command: list[str]) -> None:
        if self._spawn(command):
            while not self._told_to_stop():
                self._reap()
        self._end_tree()

    def _spawn(self, command: list[str]) -> bool:
        """Start the server; False when COMMAND could not be executed. Reports either."""
        failure_fd, write_fd = os.pipe()  # a successful exec closes it empty
        parent = os.getpid()
        self._server_pid = os.fork()
        if self._server_pid == 0:
            _become_server(command, parent, write_fd)
        os.close(write_fd)
        ticks = int(stat_fields(self._server_pid)[_START_TICKS])  # of a zombie too: it has not been waited for
        failure = b"".join(iter(lambda: os.read(failure_fd, 4096), b"")).decode()
        os.close(failure_fd)
        if failure:
            self._report(failed=failure)
        else:
            self._report(reaper=os.getpid(), pid=self._server_pid, start_ticks=ticks)
        return not failure

    def _told_to_stop(self) -> bool:
        readable, _, _ = select.select([self._control_fd, self._wake_fd], [], [])
        if self._control_fd in readable:
            return True
        numbers = os.read(self._wake_fd, 512)
        return any(number != signal.SIGCHLD for number in numbers)

    def _reap(self) -> bool:
        """Collect dead children; False when none, living or dead, is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._server_pid:
                self._report(exit=os.waitstatus_to_exitcode(status))

    def _end_tree(self) -> None:
        _signal_all(signal.SIGTERM)
        deadline = time.monotonic() + self._grace_s
        while self._reap():
            if time.monotonic() >= deadline:
                _signal_all(signal.SIGKILL)
            time.sleep(_POLL_S)

    def _report(self, **fields: object) -> None:
        with suppress(OSError):  # nobody listens any more
            os.write(self._status_fd, json.dumps(fields).encode() + b"\n")


def _become_server(command: list[str], parent: int, failure_fd: int) -> None:
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        _forget_own_state(failure_fd)
        os.execvp(command[0], command)
    except BaseException as error:
        os.write(failure_fd, f"{command[0]}: {error}".encode())
    finally:
        os._exit(127)


def _forget_own_state(keep_fd: int) -> None:
    """No descriptor but the standard three and `keep_fd`, no signal handler or mask of the reaper's."""
    top = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, keep_fd)
    os.closerange(keep_fd + 1, top if top > 0 else 1 << 20)
    signal.set_wakeup_fd(-1)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _signal_all(number: signal.Signals) -> None:
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def main() -> None:
    control_fd, status_fd, grace_s, dashes, *command = sys.argv[1:]
    assert dashes == "--" and command, sys.argv
    if os.fork():
        os._exit(0)
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    Reaper(int(control_fd), int(status_fd), float(grace_s)).run(command)


if __name__ == "__main__":
    main()

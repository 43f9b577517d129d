"""Runs generated code behind walls: one fresh set of namespaces for each set of tests, everything killed afterwards.

The walls are in `confined.walls`; this side starts them, counts time, memory and output, and ends the tree. Where the
kernel refuses namespaces no code runs, unless mode "weak" was asked for: then limits and an unprivileged uid are all
there is, and the mode is stored with every score. Knows nothing of datasets.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import selectors
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from campaigns.errors import WorldError
from campaigns.scorers.execution import Job, Limits, Outcome, TestResult
from orchestrator.checkouts.places import ROOT

UNPRIVILEGED_UID = 65534
MAX_RESULT_BYTES = 8 << 20
_POLL_S = 0.05
_GRACE_S = 10.0  # beyond the set's wall clock, for the judge to say so itself
_START = "import sys; sys.path.insert(0, {root!r}); from orchestrator.scoring.confined import walls; walls.main({fd})"
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # sets that tests look at have one order, so that scoring again gives equal scores
    "OPENBLAS_NUM_THREADS": "1",  # threads need memory, too
    "OMP_NUM_THREADS": "1",
}
_OWN_UIDS = range(0x70000000, 0x7FFFFFFF)  # nobody's, as systemd lists them
_COUNTED = ("RssAnon", "RssShmem")  # files that are mapped can be dropped again


class Mode(StrEnum):
    NAMESPACES = "namespaces"
    WEAK = "weak"  # limits and an unprivileged uid only


class SandboxRefused(WorldError):
    """The machine cannot confine code in the wanted way."""


@dataclass(frozen=True)
class Sandbox:
    """`python` runs the code inside; packages of this environment (numpy and the like) can be imported there.

    `judge_s`: CPU time that the judge may take beyond that of a program. Values of an answer can cost the judge more
    than they cost the answer: numbers whose hashes collide, fractions of a million digits.
    """

    mode: Mode = Mode.NAMESPACES
    python: str = ""
    uid: int = UNPRIVILEGED_UID  # what root becomes; anyone else stays who they are
    judge_s: float = 30.0

    def __call__(self, job: Job) -> Outcome:
        """Run one set of tests; raises SandboxRefused before any code has run."""
        with self._identity() as uid:
            started = time.monotonic()
            with self._tree(job, uid) as (process, results):
                watched = _watch(process, results, started + job.limits.wall_s + _GRACE_S, job.limits.memory_bytes)
            return self._outcome(watched, time.monotonic() - started)

    @contextmanager
    def _identity(self) -> Iterator[int]:
        """The uid of one run. Without namespaces answers of one uid could end each other: root gives each its own, and
        where there is none to give, one runs at a time on this host.
        """
        if self.mode is not Mode.WEAK:
            yield self.uid
        elif os.geteuid() == 0 and _may_become(_OWN_UIDS[-1]):
            yield secrets.choice(_OWN_UIDS)
        else:
            with (ROOT / "orchestrator/scoring/confined/walls.py").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield self.uid

    def refusal(self) -> str:
        """Why code cannot run in this mode; empty when it can. Asked before scoring: else every answer would fail."""
        program = {"kind": "steps", "prelude": "", "setup": "import numpy", "bind": {"f": "f"}, "steps": ["assert f()"]}
        try:
            outcome = self(Job(program, "import numpy\ndef f(): return True\n", Limits(wall_s=120.0)))
        except SandboxRefused as error:
            return str(error)
        return "" if outcome.passed else f"a program that has to pass does not pass inside: {outcome}"

    @contextmanager
    def _tree(self, job: Job, uid: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
        """The process tree of one run, gone on exit, and the descriptor of its results."""
        with tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True) as folder:
            if self.mode is Mode.WEAK and os.geteuid() == 0:
                os.chown(folder, uid, uid)
            results, write_end = os.pipe()
            try:
                process = subprocess.Popen(
                    [self._python, "-s", "-S", "-P", "-B", "-c", _START.format(root=str(ROOT), fd=write_end)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(write_end,),
                    start_new_session=True,
                    cwd="/",
                    env=_ENVIRONMENT,
                )
                os.close(write_end)
                try:
                    _hand_over(process, self._request(job, folder, uid))
                    yield process, results
                finally:
                    _end(process)
            finally:
                os.close(results)

    def _request(self, job: Job, folder: str, uid: int) -> dict[str, Any]:
        packages = os.path.realpath(sysconfig.get_path("purelib"))
        own = [str(ROOT / "orchestrator" / name) for name in ("__init__.py", "scoring/__init__.py", "scoring/confined")]
        visible = [os.path.realpath(sys.base_prefix), packages, *own]
        if self.mode is Mode.WEAK and os.geteuid() == 0:
            self._check_readable()
        return {
            "mode": str(self.mode),
            "uid": uid,
            "parent": os.getpid(),
            "folder": folder,
            "visible": visible,
            "limits": {**job.limits.to_json(), "judge_s": self.judge_s},
            "job": {
                "program": dict(job.program),
                "source": job.source,
                "limits": job.limits.to_json(),
                "python": self._python,
                "paths": [str(ROOT), packages],
            },
        }

    @property
    def _python(self) -> str:
        return os.path.realpath(self.python or getattr(sys, "_base_executable", sys.executable))

    def _check_readable(self) -> None:
        """Without a root of its own, the unprivileged uid must be able to reach the interpreter and this checkout."""
        for path in (Path(self._python), ROOT / "orchestrator/scoring/confined"):
            closed = [p for p in (path, *path.parents) if not p.stat().st_mode & stat.S_IXOTH]
            if closed:
                raise SandboxRefused(
                    f"sandbox.mode=weak as root: uid {self.uid} cannot enter {closed[-1]}, which holds {path}; "
                    "run as an ordinary user, or install there where everyone may read"
                )

    def _outcome(self, watched: _Watched, wall_s: float) -> Outcome:
        lines = _parse(watched.data)
        refused = next((line["refused"] for line in lines if "refused" in line), None)
        if refused is not None:
            raise SandboxRefused(
                f"the kernel refuses to confine generated code ({refused}); allow user namespaces, "
                "or accept limits alone with sandbox.mode=weak"
            )
        results = tuple(TestResult(line["status"], line["detail"]) for line in lines if "status" in line)
        done = bool(lines) and lines[-1] == {"done": True}
        broke = watched.broke or ("" if done else "no-verdict")
        return Outcome(results, broke, wall_s, str(self.mode))


class Tried:
    """A sandbox, tried once before the first program: a machine that cannot run code must not call answers wrong."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox, self._lock, self._tried = sandbox, Lock(), False

    def __call__(self, job: Job) -> Outcome:
        with self._lock:
            refusal = "" if self._tried else self._sandbox.refusal()
            self._tried = not refusal
        if refusal:
            raise SandboxRefused(refusal)
        return self._sandbox(job)


@dataclass(frozen=True)
class _Watched:
    data: bytes
    broke: str


def _hand_over(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    assert process.stdin is not None, "started with a pipe"
    with suppress(BrokenPipeError):  # it has ended already: no verdict will say so
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()


def _watch(process: subprocess.Popen[bytes], results: int, deadline: float, memory_bytes: int) -> _Watched:
    """Collect results until the judge closes them, or the tree breaks a limit."""
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(results, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if selector.select(_POLL_S):
                chunk = os.read(results, 65536)
                if not chunk:
                    return _Watched(bytes(data), "")
                data += chunk
            if len(data) > MAX_RESULT_BYTES:
                return _Watched(b"", "output-limit")
            if _used_bytes(process.pid) > memory_bytes:
                return _Watched(bytes(data), "memory")
    return _Watched(bytes(data), "timeout")


def _parse(data: bytes) -> list[dict[str, Any]]:
    """Whole lines only: the last one may have been cut by the end of the tree."""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the tree from its leaves' init upwards; the kernel ends a PID namespace with its first process."""
    deadline = time.monotonic() + _GRACE_S
    tree = descendants(process.pid)
    while time.monotonic() < deadline:
        for pid in reversed([process.pid, *tree]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        tree = [pid for pid in tree if _is_alive(pid)]
        if not tree:
            return
        time.sleep(0.01)
    raise SandboxRefused(f"processes {tree} of a sandbox cannot be killed; look at them before scoring goes on")


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, parents first."""
    children: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += [int(word) for word in (task / "children").read_text().split()]
    return [*children, *(below for child in children for below in descendants(child))]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _may_become(uid: int) -> bool:
    """Whether the user namespace of this process has the uid."""
    spans = (tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(first <= uid < first + count for first, _, count in spans)


def _used_bytes(root_pid: int) -> int:
    """Memory of all processes of the tree without file mappings; what several of them share counts for each. Sockets
    count as if they were full: what lies in them belongs to no process. Pipes are bounded by the kernel for each user.
    """
    total_kib, sockets = 0, set()
    for pid in descendants(root_pid):
        with suppress(OSError):
            lines = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            total_kib += sum(int(value.split()[0]) for name, _, value in lines if name in _COUNTED)
        with suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    sockets.add(str(entry.readlink()))
    return (total_kib << 10) + sum(name.startswith("socket:") for name in sockets) * _socket_bytes()


@cache
def _socket_bytes() -> int:
    """The most that one socket holds: the kernel doubles what a program asks for."""
    return 2 * int(Path("/proc/sys/net/core/wmem_max").read_text())

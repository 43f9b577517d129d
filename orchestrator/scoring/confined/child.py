"""One program started by the judge: a fresh interpreter with a CPU limit, watched until it ends or breaks a limit.

Knows nothing of tests. What it started is killed with it, so the next program meets an empty machine.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.scoring.confined import syscalls

FLAGS = ("-s", "-S", "-P", "-B")  # nothing but the standard library and the paths that are added
START = "import sys; sys.path += {paths!r}; {entry}"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # equal set orders, so that scoring again gives equal scores
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
_TAIL_BYTES = 600


@dataclass(frozen=True)
class Interpreter:
    """How to start a program inside: the executable, the folders it may import from, seconds of CPU time."""

    python: str
    paths: tuple[str, ...]
    cpu_s: float

    def start(self, entry: str, **streams: Any) -> Program:
        command = [self.python, *FLAGS, "-c", START.format(paths=list(self.paths), entry=entry)]
        folder = str(Path.cwd())
        used_s = _children_cpu_s()
        process = subprocess.Popen(
            command,
            env={"HOME": folder, "TMPDIR": folder, **ENVIRONMENT},
            start_new_session=True,
            preexec_fn=self._confine,
            **streams,
        )
        return Program(process, self.cpu_s, used_s)

    def _confine(self) -> None:
        syscalls.apply()
        seconds = max(1, round(self.cpu_s))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


@dataclass(frozen=True)
class Ended:
    """How a program ended. `broke` names the limit that ended it, empty when it ended by itself."""

    code: int  # negative: killed by that signal
    broke: str  # timeout | output-limit | memory
    output: bytes = b""
    error_tail: str = ""


@dataclass(frozen=True)
class Program:
    process: subprocess.Popen[bytes]
    cpu_s: float
    used_before_s: float

    def watch(self, deadline: float, output_bytes: int) -> Ended:
        """Read standard output and error until both close; `deadline` is on the monotonic clock."""
        output, errors, broke = bytearray(), bytearray(), ""
        with selectors.DefaultSelector() as selector:
            for stream, store in ((self.process.stdout, output), (self.process.stderr, errors)):
                assert stream is not None, "watch needs both pipes"
                selector.register(stream, selectors.EVENT_READ, store)
            while selector.get_map() and not broke:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                broke = "" if ready else "timeout"
                for key, _ in ready:
                    data = os.read(key.fd, 65536)
                    key.data.extend(data)
                    if not data:
                        selector.unregister(key.fileobj)
                del errors[:-_TAIL_BYTES]
                broke = "output-limit" if len(output) > output_bytes else broke
        ended = self.finish(0.0 if broke else deadline)
        broke = broke or ended.broke or ("memory" if ended.code and b"MemoryError" in errors else "")
        return Ended(ended.code, broke, bytes(output), errors.decode(errors="replace"))

    def finish(self, deadline: float = 0.0) -> Ended:
        """Wait until `deadline`, then end the program and everything that it started."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        ended_itself = self.process.poll() is not None
        _kill_everyone_else()
        code = self.process.wait()
        used_s = _children_cpu_s() - self.used_before_s
        _reap_orphans()
        if ended_itself:
            over = code == -signal.SIGXCPU or (code == -signal.SIGKILL and used_s >= self.cpu_s)
            return Ended(code, "timeout" if over else "")
        return Ended(code, "timeout" if deadline else "")


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _kill_everyone_else() -> None:
    """Every process below this one; as first process of a PID namespace that is every other one in it."""
    for _ in range(1000):
        for pid in [-1] if os.getpid() == 1 else _descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not _descendants(os.getpid()):
            return
        time.sleep(0.002)


def _descendants(pid: int) -> list[int]:
    """Living ones; a zombie has none."""
    children = [child for child in _children(pid) if not _is_zombie(child)]
    return [*children, *(below for child in children for below in _descendants(child))]


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += [int(word) for word in (task / "children").read_text().split()]
    return children


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _reap_orphans() -> None:
    """Zombies count against the process limit. Only after the program itself was waited for."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass

"""One running server that can be asked: started as a tree of processes, or attached to, and ready when it says so.

Knows the adapter's launch command and the readiness path; nothing of arms' meaning, leases or records.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from campaigns.errors import ServerFailed
from campaigns.plan import Arm, Role, ServerPlan
from campaigns.records import HIDDEN, Process
from orchestrator.hosts.process import ServerTree
from orchestrator.servers.adapters import Adapter
from orchestrator.servers.adapters.control import ask_json, ask_once, carry, hang_up, unreachable
from orchestrator.servers.keys import headers_of

_PROBE_S = 0.1
_ANSWER_S = 5.0
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|APIKEY|API_KEY|ACCESS_KEY|PRIVATE_KEY", re.IGNORECASE)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Ground:
    """What every server of a lease stands on."""

    environment: Mapping[str, str]  # the launcher's, with the leased devices alone visible
    lock_fds: tuple[int, ...]
    cpus: tuple[int, ...]  # empty: all
    workdir: Path


def server_environment(launcher: Mapping[str, str], visibility: Mapping[str, str], cpus: int | None) -> dict[str, str]:
    """The launcher's environment plus the devices; `cpus` sets the threads of a CPU server.

    The launcher's own thread counts win. Without them a library would take every CPU, the client's included.
    """
    threads = {} if cpus is None else dict.fromkeys(_THREADS, str(cpus))
    return {**threads, **launcher, **visibility}


def disclosed(environment: Mapping[str, str], *secrets: str) -> dict[str, str]:
    """The environment as it may be stored: without the variables named as secrets, and what looks like one."""
    return {
        name: HIDDEN if name in secrets or _SECRET.search(name) else value
        for name, value in sorted(environment.items())
    }


class RunningServer:
    """Starts on construction, is ready after `await_ready`. `role` is None where it serves both arms."""

    def __init__(self, adapter: Adapter, plan: ServerPlan, arms: Sequence[Arm], role: Role | None, ground: Ground):
        self.role = role
        self.position = 0  # requests sent so far in this life
        self.model = plan.model  # as the server names it, once it is ready
        self._plan = plan
        self._folder = ground.workdir / (role.value if role else "server")
        self._folder.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        launch = adapter.launch(plan, tuple(arms), port, self._folder)
        self.base_url = f"http://127.0.0.1:{port}" if launch else plan.base_url
        self.command = tuple(launch.argv) if launch else ()
        self.environment = {**ground.environment, **launch.env} if launch else {}
        self.headers = headers_of(plan, {**ground.environment, **(launch.env if launch else {})})
        self.proxy = plan.proxy
        carry(self.base_url, dict(self.headers), self.proxy)
        self.tree: ServerTree | None = None
        self._stopped = False
        self.ready_ns: int | None = None  # how long it took to become ready
        self._began_ns, self.began_s = time.monotonic_ns(), time.time()
        if launch:
            with _on_cpus(ground.cpus):
                self.tree = ServerTree(
                    self.command,
                    self.environment,
                    self._folder,
                    self.log_path,
                    keep_fds=ground.lock_fds,
                    grace_s=plan.stop_grace_s,
                )

    @property
    def log_path(self) -> Path:
        return self._folder / "server.log"

    def await_ready(self) -> None:
        """Until GET ready_path answers 200. Raises ServerFailed at once when the server exits, else at the deadline."""
        deadline = time.monotonic() + self._plan.ready_timeout_s
        said, wait_s = "it did not answer", 0.0
        while time.monotonic() < deadline:
            self.require_alive()
            said, wait_s = _get(self.base_url, self._plan.ready_path, min(_ANSWER_S, deadline - time.monotonic() + 0.1))
            if not said:
                self.ready_ns = time.monotonic_ns() - self._began_ns
                self.model = _served_name(self.base_url, self._plan.model)
                return
            self._leave_alone(min(wait_s, deadline - _PROBE_S - time.monotonic()))
        raise ServerFailed(
            f"{self.base_url}{self._plan.ready_path} was not ready within {self._plan.ready_timeout_s:g} s ({said}). "
            f"Raise server.ready_timeout_s, or see {self._log_or_url()}.{self._tail()}"
        )

    def _leave_alone(self, wait_s: float) -> None:
        """Until it is asked again; the end of its process is seen meanwhile."""
        until = time.monotonic() + wait_s
        time.sleep(_PROBE_S)
        while time.monotonic() < until:
            self.require_alive()
            time.sleep(_PROBE_S)

    def require_alive(self) -> None:
        if self._stopped:
            raise ServerFailed("The startup was stopped while it started.")
        if death := self.death():
            raise ServerFailed(death)

    def death(self) -> str:
        """One sentence when the server's first process has ended, with the end of its log, or when nobody listens where
        it was attached to; else nothing.
        """
        if self.tree is None:
            why = unreachable(self.base_url)
            return f"Nobody listens at {self.base_url} ({why}): the server that was attached to is gone." if why else ""
        code = self.tree.exit_code
        if code is None:
            return ""
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"The server {how}; see {self._log_or_url()}.{self._tail()}"

    def processes(self) -> tuple[Process, ...]:
        """What runs of it now. Roles tell two servers apart: `control server`, `candidate child` …"""
        prefix = f"{self.role} " if self.role else ""
        found = self.tree.processes() if self.tree else ()
        return tuple(replace(process, role=f"{prefix}{process.role}") for process in found)

    def stop(self) -> tuple[Process, ...]:
        """Survivors of the tree; a server that we did not start is left alone, and waited for no longer."""
        if self.tree is None:
            self._stopped = True
            hang_up(self.base_url)
        return self.tree.stop() if self.tree else ()

    def _log_or_url(self) -> str:
        return str(self.log_path) if self.tree else self.base_url

    def _tail(self) -> str:
        tail = self.tree.log_tail() if self.tree else ""
        return f" Its log ends:\n{tail}" if tail else ""


def _served_name(base_url: str, asked: str) -> str:
    """What a request must call the model: `asked` where the server lists it, else the first name that it lists."""
    answer = ask_json(base_url, "GET", "/v1/models")
    listed = answer.get("data") if isinstance(answer, dict) else None
    names = [str(entry["id"]) for entry in listed or () if isinstance(entry, dict) and "id" in entry]
    return asked if asked in names or not names else names[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _get(base_url: str, path: str, timeout_s: float) -> tuple[str, float]:
    """What was wrong, empty where the answer is 200, and for how long a busy server wants to be left alone."""
    try:
        answer = ask_once(base_url, "GET", path, timeout_s=timeout_s)
    except ServerFailed as error:
        return str(error.__cause__ or error), 0.0
    if answer.status == 200:
        return "", 0.0
    wait_s = answer.retry_after_s or 0.0
    return f"HTTP {answer.status}" + (f", Retry-After {wait_s:g} s" if wait_s else ""), wait_s


@contextmanager
def _on_cpus(cpus: Sequence[int]) -> Iterator[None]:
    """What this thread starts meanwhile inherits the CPUs."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus or before)
        yield
    finally:
        os.sched_setaffinity(0, before)

"""A private Ray head on this host, as small as a campaign needs it, that a slow host only delays.

Ray's own limits are short and partly fixed in its code: 15 s for the ports of its agents, 30 s for its raylet. Here the
ports are chosen before the start, so that nobody waits for them, and an answer about the raylet may take as long as the
campaign allows. A raylet that ends, or a start that takes longer, is one attempt, and nothing of it is left.
Measured with Ray 2.60.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from campaigns.errors import WorldError
from campaigns.plan import LeasePlan
from orchestrator.hosts import reaper
from orchestrator.hosts.devices.inventory import open_inventory

_OBJECT_STORE_BYTES = 80_000_000
_LOOPBACK = "127.0.0.1"
_ALIVE = "alive"
_YOUNG_S = 120.0  # longer than Ray's agents outlive a driver that was killed
_STARTS = 2  # a freshly chosen port may be taken meanwhile
_ASK_AGAIN_S = 0.1
_LISTEN_PORT = "dashboard_agent_listen_port"
_PORTS = (_LISTEN_PORT, "metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")


def device_resource(uuid: str) -> str:
    return f"device:{uuid}"


@contextlib.contextmanager
def started(plan: LeasePlan) -> Iterator[str]:
    import ray

    with open_inventory(plan.inventory) as inventory:
        resources = {device_resource(device.uuid): 1.0 for device in inventory.devices()}
    with _session_folder() as folder:
        for attempt in range(_STARTS):
            try:
                with _patient(folder / str(attempt), plan.ray_start_s):
                    _start(folder / str(attempt), resources)
                break
            except Exception as error:
                ray.shutdown()
                _end(folder / str(attempt))
                if attempt == _STARTS - 1:
                    tries = f"{_STARTS} attempts of up to {plan.ray_start_s:g} s"
                    raise WorldError(
                        f"Ray did not start in {tries} ({first_line(error)}). Is the host overloaded (then raise "
                        "lease.ray_start_s), or /tmp or /dev/shm full? See: campaign doctor."
                    ) from error
        yield ray.get_runtime_context().gcs_address


@contextlib.contextmanager
def _patient(folder: Path, limit_s: float) -> Iterator[None]:
    """Around `ray.init`: the node's parameters, its address and the question for its raylet are ours meanwhile.

    No autoscaler, no log monitor, no dashboard (without its pages it counts usage, which is off): each is a process
    that takes seconds to start, and `ray.init` waits for the last. On the loopback, as Ray does it on other systems by
    itself: nobody else on the network can reach it, and it outlives the host's change of address.
    """
    from ray._private import parameter, services

    params, ask, board, ports = parameter.RayParams, services.get_node, services.start_api_server, _free_ports()
    frugal = {"no_monitor": True, "include_log_monitor": False, "node_ip_address": _LOOPBACK, **ports}
    vars(parameter)["RayParams"] = lambda **given: params(**given | frugal)
    vars(services)["get_node"] = _patiently(ask, folder, ports[_LISTEN_PORT], limit_s)
    vars(services)["start_api_server"] = lambda *args, **named: (None, None)  # no page, no process
    try:
        yield
    finally:
        vars(parameter)["RayParams"] = params
        vars(services)["get_node"], vars(services)["start_api_server"] = ask, board


def _free_ports() -> dict[str, int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((_LOOPBACK, 0))) for _ in _PORTS]
        return {name: bound.getsockname()[1] for name, bound in zip(_PORTS, sockets, strict=True)}


def _patiently(
    ask: Callable[[str, str], Any], folder: Path, listen_port: int, limit_s: float
) -> Callable[[str, str], Any]:
    """Ray gives up 30 s after its first question: one answer may take while the raylet lives, up to `limit_s`.

    The raylet waits for a file with the one port that it is not told at its start.
    """
    from ray._raylet import persist_port  # type: ignore[attr-defined]  # native, without stubs

    deadline = time.monotonic() + limit_s

    def get_node(gcs_address: str, node_id: str) -> Any:
        for session in folder.glob("session_2*"):
            persist_port(str(session), node_id, _LISTEN_PORT, listen_port)
        while True:
            try:
                return ask(gcs_address, node_id)
            except RuntimeError:  # not registered yet
                if not _processes(b"/raylet/raylet\0") or time.monotonic() > deadline:
                    raise
            time.sleep(_ASK_AGAIN_S)

    return get_node


def _processes(word: bytes) -> list[int]:
    """Living processes below this one whose command line has `word`."""
    found = []
    for pid in reaper.descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if word in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _end(attempt: Path) -> None:
    """`ray.shutdown` knows nothing of a node that never came up."""
    for pid in _processes(str(attempt).encode()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _start(folder: Path, resources: dict[str, float]) -> None:
    import ray

    with unobtrusive():
        ray.init(
            address="local",  # even where RAY_ADDRESS names a cluster
            num_cpus=1,
            num_gpus=0,
            resources=resources,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            _temp_dir=str(folder),
        )


@contextlib.contextmanager
def _session_folder() -> Iterator[Path]:
    """A short path, since Ray's socket names below it must fit in 107 bytes. Clears those whose driver was killed."""
    prefix = f"dflash2-ray-{os.getuid()}-"
    for left in Path("/tmp").glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _claimed(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        with (folder / _ALIVE).open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _claimed(left: Path) -> Iterator[None]:
    """OSError where its driver lives. One without the file that says so was made a moment ago, or Ray's processes wrote
    into it while it was deleted: such a one is old.
    """
    if not (left / _ALIVE).exists():
        if time.time() - left.stat().st_mtime < _YOUNG_S:
            raise BlockingIOError(f"{left} may be about to be used")
        yield
        return
    with (left / _ALIVE).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def unobtrusive() -> Iterator[None]:
    """Around `ray.init`: no word on the terminal, now or when an actor dies, and no handler of TERM but ours."""
    from ray._private import worker

    vars(worker)["_worker_logs_enabled"] = False  # a page of advice; the handle says it in a sentence
    on_term = signal.getsignal(signal.SIGTERM)
    with silence():
        yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_term)  # Ray's exits with a code of its own


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep what Ray and its native half say at start and end from the user's terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for target, fd in enumerate(saved, start=1):
            os.dup2(fd, target)
            os.close(fd)


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

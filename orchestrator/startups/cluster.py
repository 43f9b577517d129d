"""Ray, as far as a campaign needs it: a private instance on this host, or one that somebody runs already.

Where we start Ray, every device of the inventory is a resource of its own, `device:UUID`, and Ray is told of no GPUs:
its own counter would hand out numbers that know nothing of UUIDs. A cluster that we join may name its devices the same
way; if it only counts GPUs, a lease can ask for a number of them but not for particular ones.

Ray holds no truth: locks and idle proofs are made on the leased host. `ray stop` is never called, because it ends every
Ray of the machine. Measured with Ray 2.60.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from campaigns.errors import LeaseTimeout, NoDevice, RayLost, WorldError
from campaigns.plan import LeasePlan
from campaigns.records import Process
from orchestrator.hosts.process import alive, identify
from orchestrator.startups.head import device_resource, first_line, silence, started, unobtrusive
from orchestrator.startups.pulse import Beats, Pulse
from orchestrator.startups.travelling import packed

_CONNECT_S = 5.0
_PLACE_S = 30.0
_LOOK_S = 1.0  # between two looks at what else may have ended
_NODE_ID = "ray.io/node-id"  # Ray's own label of every node
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no reports to the outside
    "RAY_AUTH_MODE": "token",
    "RAY_worker_niceness": "0",  # the default, 15, would be inherited by the measured server
    # Without its control store a driver would be ended from within after a minute, with 1 and no word: we look.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
    "RAY_memory_monitor_refresh_ms": "0",  # would kill the actor when the server needs most of the memory
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # older releases blank CUDA_VISIBLE_DEVICES of an actor without GPUs
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # the driver's native half writes to the user's terminal
}

# What arrives is compiled once on a node, not in every process, where whoever started that node wants no byte code.
_WORKERS = {"PYTHONDONTWRITEBYTECODE": ""}  # servers inherit the launcher's environment, not this
_WAITS = ("RAY_NUM_REDIS_GET_RETRIES", "RAY_gcs_server_port_wait_time_s")  # seconds for its own control store


class Halted(Exception):
    """The campaign is being ended while this startup waited for something."""


@dataclass(frozen=True)
class Cluster:
    """A connection to Ray. `private` instances live and die with this process and are on this host.

    `claims` are what campaigns of this process use here (orchestrator.startups.claims); they end with the connection.
    """

    private: bool
    address: str
    environment: Mapping[str, str]  # the launcher's, before Ray added to it: what servers inherit
    claims: dict[LeasePlan, Any] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()  # of a private Ray, those without which nothing goes on
    halted: threading.Event = field(default_factory=threading.Event)
    pulse: Pulse = field(default_factory=Pulse)  # of a joined head
    beats: Beats = field(default_factory=Beats)  # for actors on other hosts

    def require_alive(self) -> None:
        """RayLost at once where one of them has ended; Ray would wait a minute and then end this process, too. Halted
        where the campaign is being ended.
        """
        if self.halted.is_set():
            raise Halted
        if gone := self.gone():
            raise _lost(self, gone)

    def await_head(self) -> None:
        """Before anything is asked of Ray that only its head can answer. Raises as `require_alive`."""
        self.require_alive()
        while not self.pulse.answers():
            time.sleep(_LOOK_S)
            self.require_alive()

    def gone(self) -> str:
        """Why nothing goes on; empty while it does."""
        living = alive(self.processes)
        ended = ", ".join(process.role for process in self.processes if process not in living)
        return f"its process {ended} ended" if ended else self.pulse.lost()

    def end(self) -> None:
        """What is left of a private Ray that is gone in part: it would answer nothing, and wait for what is gone."""
        from ray._private import worker

        node: Any = worker._global_node
        with _ENDING:  # startups side by side all find out
            if node is not None:
                node.kill_all_processes(check_alive=False, allow_graceful=False)


_ENDING = threading.Lock()


@dataclass(frozen=True)
class Placement:
    """Resources on one host, held until `remove`. `names_devices` is False where Ray merely counts GPUs."""

    group: Any  # ray.util.placement_group.PlacementGroup
    resources: dict[str, float]
    names_devices: bool
    shared: bool = False  # the campaign's: it outlives a startup

    @property
    def strategy(self) -> Any:
        """Of an actor that runs there."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=0)

    def options(self) -> dict[str, Any]:
        """Options of an actor that uses all of it."""
        named = {name: amount for name, amount in self.resources.items() if name not in ("GPU", "CPU")}
        counted = {"num_gpus": self.resources["GPU"]} if "GPU" in self.resources else {}
        return {"num_cpus": 0, "resources": named, "scheduling_strategy": self.strategy, **counted}

    @property
    def node_id(self) -> str:
        """Of the node that has it; empty where that was lost and Ray has found no other."""
        from ray.util import placement_group_table

        return str(placement_group_table(self.group)["bundles_to_node_id"][0])

    def remove(self) -> None:
        from ray.util import remove_placement_group

        if not self.shared:
            remove_placement_group(self.group)


def host_of(node_id: str) -> str:
    """The name of a node's host, for people."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return next((str(node["NodeManagerHostname"]) for node in nodes if node["NodeID"] == node_id), "a lost host")


@contextlib.contextmanager
def connect(plan: LeasePlan, halted: threading.Event | None = None) -> Iterator[Cluster]:
    """Start a private Ray, or join the one at `plan.ray_address`; disconnect at the end. Raises WorldError.

    Whoever waits for something in the cluster looks at `halted`.
    """
    with _settings(plan) as environment:
        import ray  # reads its settings when it is imported

        with _joined(plan) if plan.ray_address else started(plan) as address:
            private, halted = not plan.ray_address, halted or threading.Event()
            pulse = Pulse(plan.ray_address)
            cluster = Cluster(private, address, environment, processes=_vital(private), halted=halted, pulse=pulse)
            try:
                yield cluster
            finally:
                cluster.beats.end()
                for claims in cluster.claims.values():
                    claims.release()
                with silence():
                    if cluster.gone():
                        cluster.end()
                    ray.shutdown()


def _vital(private: bool) -> tuple[Process, ...]:
    from ray._private import worker

    if not private:
        return ()
    node: Any = worker._global_node
    started = node.all_processes
    named = [(info.process.pid, name) for name in ("gcs_server", "raylet") for info in started.get(name, ())]
    return tuple(process for pid, name in named if (process := identify(pid, name)))


@contextlib.contextmanager
def _settings(plan: LeasePlan) -> Iterator[dict[str, str]]:
    """Ray's environment while it is needed; yields the one before, which the next campaign of this process finds."""
    environment = dict(os.environ)
    settings = _SETTINGS | dict.fromkeys(_WAITS, str(round(plan.ray_start_s)))
    os.environ.update({name: value for name, value in settings.items() if name not in os.environ})
    try:
        yield environment
    finally:
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]


@contextlib.contextmanager
def _joined(plan: LeasePlan) -> Iterator[str]:
    import ray

    address = plan.ray_address
    _probe(address, plan.ray_start_s)
    try:
        with packed() as code, unobtrusive():
            there = {"working_dir": str(code), "env_vars": _WORKERS}
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, runtime_env=there)
    except WorldError:
        raise
    except Exception as error:
        raise WorldError(f"lease.ray_address={address}: Ray refused us ({first_line(error)}).") from error
    yield address


def _probe(address: str, patience_s: float) -> None:
    """Join once in a process that can be killed: against a dying head `ray.init` may hang for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise WorldError(f"lease.ray_address={address} is not HOST:PORT of a Ray head.")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise WorldError(f"lease.ray_address={address}: nobody answers ({error}). Is the Ray head up?") from error
    script = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"
    try:
        joined = subprocess.run([sys.executable, "-c", script, address], capture_output=True, timeout=patience_s)
    except subprocess.TimeoutExpired as error:
        raise WorldError(
            f"lease.ray_address={address}: not joined within {patience_s:g} s. Is it a Ray head, or a busy host (then "
            "raise lease.ray_start_s)?"
        ) from error
    if joined.returncode != 0:
        reason = joined.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise WorldError(
            f"lease.ray_address={address}: Ray refused us ({reason[0]}). The head must run the same versions of Ray "
            "and Python, and the same RAY_AUTH_MODE."
        )


def place(
    cluster: Cluster, plan: LeasePlan, uuids: Sequence[str], deadline: float, elsewhere_than: Sequence[str] = ()
) -> Placement:
    """Reserve on one host the devices that were picked, or as many as the plan counts where none were.

    Waits until `deadline` (of time.monotonic). `elsewhere_than` are ids of nodes that are not wanted. Raises
    LeaseTimeout, or NoDevice when the cluster can never give them.
    """
    import ray
    from ray.util import placement_group

    cluster.await_head()
    if not any(node["Alive"] for node in ray.nodes()):  # type: ignore[no-untyped-call]
        raise _lost(cluster, "no host of it is alive")
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    resources, names_devices = _wanted(plan, uuids, there)
    where = [{_NODE_ID: f"!in({','.join(elsewhere_than)})"}] if elsewhere_than else None
    group = placement_group([resources], strategy="STRICT_PACK", bundle_label_selector=where)
    placement = Placement(group, resources, names_devices)
    until = max(time.monotonic() + (_PLACE_S if cluster.private else 1.0), deadline)
    if not _placed(cluster, group, until):
        placement.remove()
        raise LeaseTimeout(
            f"Ray at {cluster.address} had no host with {', '.join(resources)} free within {plan.wait_s:g} s: another "
            "campaign holds them. Wait longer with lease.wait_s."
        )
    return placement


def _placed(cluster: Cluster, group: Any, until: float) -> bool:
    while True:
        try:
            if group.wait(min(_LOOK_S, max(0.0, until - time.monotonic()))):
                return True
        except Exception as error:  # Ray's own class for a cluster that is going away is Exception
            raise _lost(cluster, first_line(error)) from error
        cluster.require_alive()
        if time.monotonic() >= until:
            return False


def _lost(cluster: Cluster, why: str) -> RayLost:
    return RayLost(f"Ray at {cluster.address} is gone ({why}). Nothing recorded is lost: campaign resume last.")


def _wanted(plan: LeasePlan, uuids: Sequence[str], there: dict[str, float]) -> tuple[dict[str, float], bool]:
    named = {device_resource(uuid): 1.0 for uuid in uuids or plan.uuids}
    if named and all(name in there for name in named):
        return named, True
    if named or plan.indices:
        raise NoDevice(
            f"lease.ray_address={plan.ray_address}: that cluster does not name the devices asked for. Lease by "
            "lease.count, or start its nodes with --resources='{\"device:GPU-…\": 1}'."
        )
    kind = "GPU" if "GPU" in there else "CPU"
    amount = float(plan.count) if kind == "GPU" else 1.0
    if there.get(kind, 0) < amount:
        have = f"{there.get(kind, 0):g} {kind}"
        raise NoDevice(f"lease.count={plan.count}, but the cluster at {plan.ray_address} has {have}.")
    return {kind: amount}, False

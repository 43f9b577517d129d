"""The test stand of one startup: lease, servers, client and sampler of one host, in one process.

Runs inside a Ray actor and knows nothing of Ray. Every public method is called by one
driver, one after the other; only `stop` may come while another is at work, and ends it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaigns.errors import NoDevice, ServerFailed
from campaigns.order import first_role
from campaigns.plan import Arm, Block, CampaignPlan, Fixture, Role, StartupMode, Step
from campaigns.reasons import Reason
from campaigns.records import Calibration, DeviceSample, Process, Request, Startup, StartupEnd, StartupStatus
from orchestrator.hosts.claim import pick_patiently
from orchestrator.hosts.cpus import Cpus, cpus_of
from orchestrator.hosts.devices.boundary import device_states
from orchestrator.hosts.devices.cpu import CpuInventory
from orchestrator.hosts.devices.device import chosen
from orchestrator.hosts.devices.energy import counted_mj, with_power
from orchestrator.hosts.devices.hardware import with_samples
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.devices.sampler import Sampler
from orchestrator.hosts.lease import Lease, acquire, name_holder
from orchestrator.hosts.locks import LockFolder
from orchestrator.hosts.process import boot_id, counts_as_the_host
from orchestrator.measuring.bench import Attempt, Bench
from orchestrator.measuring.calibration import calibrate
from orchestrator.measuring.client import Client
from orchestrator.servers.adapters import open_adapter
from orchestrator.servers.answers import capacity_of, identity_of, ids_of, lacks
from orchestrator.servers.serving import Ground, RunningServer, disclosed, server_environment


@dataclass(frozen=True)
class Assignment:
    """What a stand is there for. `environment` is the launcher's: the servers inherit it."""

    plan: CampaignPlan
    campaign_id: str
    startup: int
    attempt: int
    workdir: Path
    holder: str
    environment: Mapping[str, str]
    nice: int  # the launcher's priority, which the servers inherit too


def starts_servers(plan: CampaignPlan) -> bool:
    """Whether the devices must be idle first: an attached server runs on them already."""
    return plan.server.adapter != "attach"


class Stand:
    def __init__(self, assignment: Assignment) -> None:
        _require_priority(assignment.nice)
        self.assignment, self.plan = assignment, assignment.plan
        self._inventory = open_inventory(self.plan.lease.inventory)
        self._folder = LockFolder(self.plan.lease.lock_dir)
        self._adapter = open_adapter(self.plan.server.adapter)
        self._cpus = Cpus()
        self._client = Client()
        attempt = Attempt(assignment.campaign_id, assignment.startup, assignment.attempt)
        self._bench = Bench(self.plan, self._adapter, self._client, attempt, self._energy_mj)
        self._lease: Lease | None = None
        self._sampler: Sampler | None = None
        self._samples: list[DeviceSample] = []  # taken and not yet asked for
        self._calibration: Calibration | None = None
        self.servers: list[RunningServer] = []
        self._ran: dict[int, Process] = {}  # every process that ever ran on the lease
        self._guests: frozenset[int] = frozenset()  # PIDs on the devices that are not foreign either
        self._at_work = threading.RLock()
        self._stopping = False

    # -- lease -------------------------------------------------------------------------------------------------------

    def acquire(self, uuids: Sequence[str], wait_s: float) -> tuple[str, ...]:
        """Lock these devices, or those that the plan asks for on this host, and prove them idle."""
        deadline = time.monotonic() + wait_s
        idle = starts_servers(self.plan)
        if uuids:
            devices = chosen(self._inventory.devices(), (), uuids)
        else:
            devices = pick_patiently(self._folder, self._inventory, self.plan.lease, deadline, idle=idle)
        holder = name_holder(self.assignment.holder)
        remaining_s = max(0.0, deadline - time.monotonic())
        self._lease = lease = acquire(self._folder, self._inventory, devices, holder, remaining_s, idle=idle)
        self._cpus = cpus_of(self._inventory, lease.uuids, self.plan.lease.per_host)
        self._client.cpus = self._cpus.client
        self._guests = self._pids_on_devices()  # those of an attached server
        self._sampler = Sampler(self.plan.lease.inventory, lease.uuids, self.plan.sample_hz)
        return lease.uuids

    # -- server lives ------------------------------------------------------------------------------------------------

    def start(self) -> Startup:
        with self._at_work:
            return self._start(self.first_lives())

    def activate(self, role: Role) -> Startup:
        """End the running life, wait until its memory has come back, start the other arm's on the same lease."""
        with self._at_work:
            assert self._lease is not None
            survivors = self._stop_servers()
            if faults := self._lease.unreturned(self._inventory, (*survivors, *self._ran.values())):
                raise ServerFailed(f"The {role.other} life did not end cleanly: {'; '.join(faults.values())}.")
            return self._start({role: (self.plan.arm(role),)})

    def first_lives(self) -> dict[Role | None, tuple[Arm, ...]]:
        """Which arms each server life serves; one life without a role serves both."""
        plan = self.plan
        if plan.startup_mode is StartupMode.SWITCH:
            return {None: (plan.control, plan.candidate)}
        if plan.startup_mode is StartupMode.CO_RESIDENT:
            return {role: (plan.arm(role),) for role in Role}
        first = first_role(plan.seed, "sequential", self.assignment.startup)
        return {first: (plan.arm(first),)}

    def _start(self, lives: Mapping[Role | None, tuple[Arm, ...]]) -> Startup:
        created_utc = _now()
        for role, arms in lives.items():
            if self._stopping:
                raise ServerFailed("The startup was stopped while it started.")
            self.servers.append(RunningServer(self._adapter, self.plan.server, arms, role, self._ground()))
        for server in self.servers:
            server.await_ready()
        self._adopt()
        assert self._sampler is not None
        self._sampler.start()
        if self._calibration is None and self.plan.calibrate_s > 0:
            self._calibration = calibrate(self.plan.calibrate_s, self._client)
        self._bench.servers = {role: self._server_of(role) for role in Role if role in lives or None in lives}
        return self._record(created_utc)

    def _ground(self) -> Ground:
        assert self._lease is not None
        on_cpu = isinstance(self._inventory, CpuInventory)
        threads = (len(self._cpus.servers) or max(1, len(os.sched_getaffinity(0)) - 1)) if on_cpu else None
        visibility = self._inventory.visibility(self._lease.uuids)
        environment = server_environment(self.assignment.environment, visibility, threads)
        return Ground(environment, self._lease.fds, self._cpus.servers, self.assignment.workdir)

    def _server_of(self, role: Role) -> RunningServer:
        return next(server for server in self.servers if server.role in (role, None))

    def _record(self, created_utc: str) -> Startup:
        assert self._lease is not None
        return Startup(
            campaign_id=self.assignment.campaign_id,
            startup=self.assignment.startup,
            attempt=self.assignment.attempt,
            role=self.servers[0].role if len(self.servers) == 1 else None,
            created_utc=created_utc,
            boot_id=boot_id(),
            host=socket.gethostname(),
            device_uuids=self._lease.uuids,
            processes=self._processes(),
            ready_ns=max(server.ready_ns or 0 for server in self.servers),
            identity={
                **identity_of(self._adapter, self.servers),
                "lacks": lacks(self._adapter, self.servers, self.plan.fixtures[0]),
                **self._neighbours(),
            },
            environment=self._environment(),
            command=tuple(word for server in self.servers for word in server.command),
            calibration=self._calibration,
        )

    def _neighbours(self) -> dict[str, Any]:
        """What a startup that may have others beside it has of the host's CPUs; empty lists: it shares all of them."""
        if self.plan.lease.per_host == 1:
            return {}
        return {"neighbours": {"per_host": self.plan.lease.per_host, **asdict(self._cpus)}}

    def _environment(self) -> dict[str, str]:
        whole = {name: value for server in self.servers for name, value in server.environment.items()}
        return disclosed(whole, self.plan.server.api_key_env)

    def _adopt(self) -> None:
        """Inside a container NVML may count PIDs as the host does. The device was idle before, so when none of the PIDs
        on it is one of ours, those that came with the server are the server's under other numbers.
        """
        self._processes()
        seen = self._pids_on_devices() - self._guests
        if not counts_as_the_host() and not seen & self._ran.keys():
            self._guests |= seen

    def _pids_on_devices(self) -> frozenset[int]:
        assert self._lease is not None
        return frozenset(pid for uuid in self._lease.uuids for pid in self._inventory.processes(uuid) or ())

    def _processes(self) -> tuple[Process, ...]:
        now = tuple(process for server in self.servers for process in server.processes())
        self._ran.update({process.pid: process for process in now})
        return now

    # -- questions ---------------------------------------------------------------------------------------------------

    def token_ids(self, fixtures: Sequence[Fixture]) -> dict[str, tuple[int, ...] | None]:
        with self._at_work:
            return {fixture.id: ids_of(self._adapter, self.servers, fixture) for fixture in fixtures}

    def capacity(self) -> int | None:
        with self._at_work:
            return capacity_of(self._adapter, self.servers)

    def identity(self) -> dict[str, Any]:
        """What the live servers say of themselves, and the state of the GPUs now."""
        with self._at_work:
            assert self._lease is not None
            states = device_states(self._inventory, self._lease.uuids)
            return identity_of(self._adapter, self.servers) | ({"device_state": states} if states else {})

    # -- requests ----------------------------------------------------------------------------------------------------

    def warm(
        self, block: Block, count: int, roles: Sequence[Role], max_tokens: int, block_attempt: int
    ) -> list[Request]:
        with self._at_work:
            self._watch()
            return self._judged(self._bench.warm(block, count, roles, max_tokens, block_attempt))

    def run(self, steps: Sequence[Step], max_tokens: int, block_attempt: int) -> list[Request]:
        with self._at_work:
            self._watch()
            return self._judged(self._bench.run(steps, max_tokens, block_attempt))

    def samples(self) -> list[DeviceSample]:
        """Device samples since the last call, whose taking nobody ended."""
        with self._at_work:
            self._watch()
            self._drain()
            samples, self._samples = self._samples, []
            return samples

    def _watch(self) -> None:
        assert self._sampler is not None
        self._sampler.require()

    def _judged(self, requests: list[Request]) -> list[Request]:
        """The requests with what the device samples say of the time in which they ran."""
        fresh = self._drain()
        return [with_power(with_samples(request, fresh), fresh) for request in requests]

    def _energy_mj(self) -> int | None:
        assert self._lease is not None
        return counted_mj(self._inventory, self._lease.uuids)

    def _drain(self) -> list[DeviceSample]:
        fresh = self._sampler.drain(self._guests | self._ran.keys()) if self._sampler else []
        if any(sample.foreign_pids for sample in fresh):
            self._processes()  # the server may have started more of them
            fresh = [replace(s, foreign_pids=tuple(p for p in s.foreign_pids if p not in self._ran)) for s in fresh]
        self._samples += fresh
        return fresh

    # -- end ---------------------------------------------------------------------------------------------------------

    def stop(self) -> StartupEnd:
        """TERM, wait, KILL, scan, idle proof, unlock. Ends a request in flight, by its server where that is ours."""
        self._stopping = True
        survivors = self._stop_servers()  # before the lock: whoever holds it may be waiting for a server
        self._bench.end()
        with self._at_work:
            survivors += tuple(process for process in self._stop_servers() if process not in survivors)
            self._client.close()
            if self._sampler is not None:
                self._sampler.close()
            return self._release(survivors)

    def _stop_servers(self) -> tuple[Process, ...]:
        self._processes()
        servers = list(self.servers)
        survivors = tuple(process for server in servers for process in server.stop())
        self.servers = [server for server in self.servers if server not in servers]
        return survivors

    def _release(self, survivors: tuple[Process, ...]) -> StartupEnd:
        lease, self._lease = self._lease, None
        faults: tuple[str, ...] = ()
        if lease is not None:
            faults = lease.release(self._folder, self._inventory, (*self._ran.values(), *survivors))
        if faults or survivors:
            return StartupEnd(StartupStatus.FAILED, _now(), Reason.SURVIVORS, "; ".join(faults), survivors=survivors)
        return StartupEnd(StartupStatus.COMPLETE, _now())


def _require_priority(nice: int) -> None:
    """A server inherits its actor's priority. Ray's workers run at nice 15 unless the cluster was told otherwise."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    if ours <= nice:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError:
        raise NoDevice(
            f"Ray's workers run at nice {ours} here and a server would inherit that: start the cluster with "
            "RAY_worker_niceness=0 in its environment."
        ) from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

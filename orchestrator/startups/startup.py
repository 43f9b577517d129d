"""One startup: an actor on the leased host that owns locks, servers and client, and the driver's handle on it.

The actor dies with its raylet, its servers die with it (orchestrator.hosts.reaper), and the locks outlive it until
the last of their processes is gone. The handle turns every way in which an actor can be lost into a ServerFailed;
what the actor raises crosses as itself. Which requests to send, and what to store, is the driver's business.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from campaigns.errors import CampaignError, HelperLost, LeaseTimeout, ServerFailed
from campaigns.plan import Block, CampaignPlan, Fixture, Role, Step
from campaigns.reasons import Reason
from campaigns.records import DeviceSample, Process, Request, Startup, StartupEnd, StartupStatus
from orchestrator.hosts.lease import RETURN_S
from orchestrator.hosts.locks import Kind, LockFolder
from orchestrator.hosts.process import alive, die_with_parent
from orchestrator.startups.claims import Claims, Held, claims_of
from orchestrator.startups.cluster import Cluster, Placement, place
from orchestrator.startups.keeper import RemoteClaim
from orchestrator.startups.pulse import Heard
from orchestrator.startups.stand import Assignment, Stand

T = TypeVar("T")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # what a host's disk may answer
_ANSWER_S = 60.0  # beyond what a call may take by itself
_STOP_S = 60.0
_LOOK_S = 1.0  # between two looks at Ray's own processes
_LEFT_S = 10.0  # beyond the grace: how long what is left of a lost startup may take to end


class StandActor(Stand, Heard):
    """The stand as Ray runs it: its parent is the raylet, whose death it would otherwise survive."""

    def __init__(self, assignment: Assignment, node_id: str) -> None:
        """`node_id` is where the claim is; empty on a private Ray."""
        die_with_parent()
        Heard.__init__(self)
        self._node_id = node_id
        self._fault: CampaignError | None = None
        try:
            Stand.__init__(self, assignment)
        except CampaignError as error:
            self._fault = error  # Ray would wrap what a constructor raises

    def acquire(self, uuids: Sequence[str], wait_s: float) -> tuple[str, ...]:
        _require_node(self._node_id)
        if self._fault is not None:
            raise self._fault
        return super().acquire(uuids, wait_s)


class StartupHandle:
    """The driver's side. A context manager: leaving it stops the startup and gives the lease back."""

    actor: ClassVar[type[StandActor]] = StandActor

    def __init__(self, claims: Claims, held: Held, assignment: Assignment, deadline: float) -> None:
        self._plan, self._cluster, self._claims, self._held = assignment.plan, claims.cluster, claims, held
        self._uuids: tuple[str, ...] = ()
        self._processes: tuple[Process, ...] = ()
        self._end: StartupEnd | None = None
        self._host = held.host if isinstance(held, RemoteClaim) else ""
        self._refused = False  # the host takes no more files
        try:
            self._cluster.await_head()
            self._placement = _placement(claims, held, deadline)
            self._actor = _spawn(self.actor, self._placement, held, assignment)
            self._cluster.beats.add(self._actor)
        except BaseException:
            claims.give_back(held)
            raise

    @classmethod
    def lease(
        cls,
        cluster: Cluster,
        plan: CampaignPlan,
        campaign_id: str,
        startup: int,
        attempt: int,
        workdir: Path,
        on_wait: Callable[[str], None] = lambda why: None,
    ) -> Self:
        """Hold the devices, proven idle. Waits at most `plan.lease.wait_s`; LeaseTimeout names the holder, and so does
        what `on_wait` is told when the wait begins.
        """
        cluster.require_alive()
        deadline = time.monotonic() + plan.lease.wait_s
        name = f"campaign {campaign_id}, startup {startup + 1}"
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        assignment = Assignment(plan, campaign_id, startup, attempt, workdir.resolve(), name, cluster.environment, nice)
        claims = claims_of(cluster, plan, campaign_id)
        while True:
            handle = cls(claims, claims.take(deadline, on_wait), assignment, deadline)
            try:
                handle._acquire(max(_LEFT_S + plan.server.stop_grace_s, deadline - time.monotonic()))
                return handle
            except BaseException as error:
                handle._discard()
                lost_race = isinstance(error, LeaseTimeout) and time.monotonic() < deadline
                if not lost_race:
                    raise

    def _acquire(self, wait_s: float) -> None:
        """What a startup that was lost left on the devices of this claim is on its way out: it is waited for. The
        actor's process starts first, for which a slow host may need as long as for Ray itself.
        """
        self._uuids = self._ask("acquire", self._held.uuids, wait_s, timeout_s=wait_s + self._plan.lease.ray_start_s)

    @property
    def uuids(self) -> tuple[str, ...]:
        return self._uuids

    def start(self) -> Startup:
        """Servers up and ready, calibration done."""
        return self._note(self._ask("start", timeout_s=self._start_s))

    def activate(self, role: Role) -> Startup:
        """Sequential mode: end the running life and start the other arm's."""
        return self._note(self._ask("activate", role, timeout_s=self._start_s + self._stop_s))

    def token_ids(self, fixtures: Sequence[Fixture]) -> dict[str, tuple[int, ...] | None]:
        answer: dict[str, tuple[int, ...] | None] = self._ask(
            "token_ids", tuple(fixtures), timeout_s=_ANSWER_S * (1 + len(fixtures))
        )
        return answer

    def capacity(self) -> int | None:
        """Tokens of the longest sequence; None where the server does not say."""
        answer: int | None = self._ask("capacity")
        return answer

    def warm(
        self, block: Block, count: int, roles: Sequence[Role], max_tokens: int, block_attempt: int
    ) -> list[Request]:
        answer: list[Request] = self._ask("warm", block, count, tuple(roles), max_tokens, block_attempt, timeout_s=None)
        return answer

    def run(self, steps: Sequence[Step], max_tokens: int, block_attempt: int) -> list[Request]:
        """Fewer requests than steps come back when the server died: the last one says so."""
        answer: list[Request] = self._ask("run", tuple(steps), max_tokens, block_attempt, timeout_s=None)
        return answer

    def identity(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._ask("identity")
        return answer

    def samples(self) -> list[DeviceSample]:
        """Device samples since the last call."""
        answer: list[DeviceSample] = self._ask("samples")
        return answer

    def stop(self) -> StartupEnd:
        """End the servers, prove the devices idle, unlock. A lost actor is an end too; later calls repeat it."""
        if self._end is None:
            try:
                self._end = self._ask("stop", timeout_s=self._stop_s)
            except CampaignError as error:
                self._end = self._lost_end(str(error))
            finally:
                self._discard()
        return self._end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _start_s(self) -> float:
        return 2 * self._plan.server.ready_timeout_s + self._plan.calibrate_s + _ANSWER_S

    @property
    def _stop_s(self) -> float:
        return 2 * (self._plan.server.stop_grace_s + RETURN_S) + _STOP_S

    def _note(self, record: Startup) -> Startup:
        self._processes += record.processes
        self._host = record.host
        return record

    def _ask(self, method: str, *args: Any, timeout_s: float | None = _ANSWER_S) -> Any:
        """Call the actor. `None` waits as long as the actor lives: its client bounds each silence of the server."""
        import ray
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError

        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        try:
            answer = getattr(self._actor, method).remote(*args)
            while True:
                with suppress(GetTimeoutError):
                    return ray.get(answer, timeout=min(_LOOK_S, max(0.0, deadline - time.monotonic())))
                if method != "stop":  # an actor whose Ray is gone can still end its servers in order
                    self._cluster.require_alive()
                if time.monotonic() >= deadline:
                    raise ServerFailed(f"The startup did not answer `{method}` within {timeout_s:g} s.")
        except RayTaskError as error:
            if isinstance(error.cause, OSError) and error.cause.errno in _FULL:
                self._refused = True
                where = self._host or "the leased host"
                raise ServerFailed(f"{where} refused `{method}` a file: {error.cause}; make room there") from None
            raise _cause(error) from None
        except (RayError, ConnectionError) as error:
            self._cluster.require_alive()
            where = f" on {self._host}" if self._host and not self._cluster.private else ""
            raise ServerFailed(f"The startup{where} was lost during `{method}`: {_first_line(error)}") from error

    def _lost_end(self, message: str) -> StartupEnd:
        """The actor cannot say how it ended. On this host its reapers are watched until they are done."""
        deadline = time.monotonic() + self._stop_s
        folder = LockFolder(self._plan.lease.lock_dir)
        while self._cluster.private and time.monotonic() < deadline:
            if not alive(self._processes) and not any(folder.is_held(uuid, [Kind.LEASE]) for uuid in self._uuids):
                break
            time.sleep(0.1)
        left = alive(self._processes) if self._cluster.private else ()
        reason = Reason.SURVIVORS if left else Reason.INTERRUPTED
        return StartupEnd(StartupStatus.FAILED, _now(), reason, message, survivors=left)

    def _discard(self) -> None:
        """End the actor (a living one would hold its locks) and give its place back; Ray itself may be gone."""
        import ray
        from ray.exceptions import RayError

        try:
            self._cluster.beats.drop(self._actor)
            if self._cluster.gone():
                self._cluster.end()  # and the actor with its raylet
                return
            for step in (lambda: ray.kill(self._actor), self._placement.remove):
                with suppress(RayError, ConnectionError, ValueError):
                    step()
        finally:
            (self._claims.give_up_host if self._refused else self._claims.give_back)(self._held)


def _require_node(node_id: str) -> None:
    """HelperLost where this actor is elsewhere. Ray moves the place of a lost host, and nobody asked this one."""
    import ray

    if node_id and node_id != ray.get_runtime_context().get_node_id():
        raise HelperLost(f"the host where a startup had its place was lost; Ray moved it to {socket.gethostname()}")


def _placement(claims: Claims, held: Held, deadline: float) -> Placement:
    """Where the claim's devices are: the place that the claim has, or on this host."""
    if isinstance(held, RemoteClaim):
        return held.placement
    return place(claims.cluster, claims.plan, held.uuids, deadline)


def _spawn(kind: type[StandActor], placement: Placement, held: Held, assignment: Assignment) -> Any:
    """Told which node the claim is on, and where that has the weights."""
    import ray

    plan, node_id = assignment.plan, ""
    if isinstance(held, RemoteClaim):
        plan, node_id = replace(plan, server=replace(plan.server, model=held.model)), held.node_id
    # Three threads: `stop`, and that the driver is there, must reach an actor that waits for a long answer.
    options = {**placement.options(), "max_concurrency": 3, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(kind).options(**options).remote(replace(assignment, plan=plan), node_id)


def _cause(error: Any) -> BaseException:
    """What the actor raised; a bug with Ray's text of the traceback, and never under its own type: a BrokenPipeError of
    the actor's says nothing about our pipes.
    """
    cause = error.cause
    return cause if isinstance(cause, CampaignError) else RuntimeError(str(error))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

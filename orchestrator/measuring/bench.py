"""Sends the requests of one startup, each to the right server with the right arm, and makes records of them.

Between the two requests of a pair stand only what the second one needs: counters, cache reset, arm. Parsing waits until
both are over. Knows running servers, the adapter and the client; nothing of leases, Ray or the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from campaigns.errors import ServerFailed
from campaigns.plan import Block, CampaignPlan, ClientPlan, PairKey, Phase, Role, Step
from campaigns.reasons import Reason
from campaigns.records import EnergySource, Request
from campaigns.routes import is_refusal
from campaigns.seeds import measured_seed, warmup_seed
from orchestrator.hosts.devices.energy import difference_mj
from orchestrator.measuring.client import Call, Client, parse
from orchestrator.measuring.exchange import Exchange, Recording
from orchestrator.measuring.observe import Context, observe
from orchestrator.measuring.stream import read
from orchestrator.servers.adapters import Adapter, Ask
from orchestrator.servers.busy import BUSY
from orchestrator.servers.serving import RunningServer

_DEATH_S = 1.0  # how long a process may take to be seen dead after its connection broke
_BROKEN = ("closed", "reset", "refused")
_BUSY = tuple(b"HTTP/1.%d %d" % (minor, status) for minor in (0, 1) for status in BUSY)


@dataclass(frozen=True)
class Attempt:
    """Whose requests these are."""

    campaign_id: str
    startup: int
    number: int


@dataclass(frozen=True)
class _Order:
    """One request, complete but for what is known only when it is sent."""

    role: Role
    key: PairKey
    phase: Phase
    order_in_pair: int | None
    max_tokens: int
    block_attempt: int
    seed: int  # as it is sent


@dataclass(frozen=True)
class _Taken:
    order: _Order
    recording: Recording | None  # None when the server failed before the request could be sent
    position: int
    counters: Mapping[str, int]
    fault: str = ""  # what the server did wrong beside the stream
    died: bool = False
    energy_mj: int | None = None
    waited: str = ""  # for how long a busy server was left alone, in words


class Bench:
    """`servers` maps each role that can be measured now to its server; the same one twice where it serves both.

    `energy_mj` reads the counters of the servers' devices.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        adapter: Adapter,
        client: Client,
        attempt: Attempt,
        energy_mj: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.servers: Mapping[Role, RunningServer] = {}
        self._hits: dict[str, dict[str, int]] = {}  # after the last request of this run, which the next starts from
        self._plan, self._adapter, self._client, self._attempt = plan, adapter, client, attempt
        self._energy_mj = energy_mj
        self._ended = threading.Event()

    def end(self) -> None:
        """Nothing more is sent. A request in flight ends with its server; where that is not ours, here. From any
        thread.
        """
        self._ended.set()
        if any(server.tree is None for server in self.servers.values()):
            self._client.abort()

    def warm(
        self, block: Block, count: int, roles: Sequence[Role], max_tokens: int, block_attempt: int
    ) -> list[Request]:
        """`count` requests per role, the roles taking turns."""
        key = PairKey(block.startup, block.fixture, block.seed, 0)
        seeds = [warmup_seed(self._plan, key, turn) for turn in range(count)]
        return self._run(
            [_Order(role, key, Phase.WARMUP, None, max_tokens, block_attempt, seed) for seed in seeds for role in roles]
        )

    def run(self, steps: Sequence[Step], max_tokens: int, block_attempt: int) -> list[Request]:
        """Usually the two of a pair; ends early when the server died."""
        return self._run([self._measured(step, max_tokens, block_attempt) for step in steps])

    def _measured(self, step: Step, max_tokens: int, block_attempt: int) -> _Order:
        seed = measured_seed(self._plan, step.key)
        return _Order(step.role, step.key, Phase.MEASURE, step.order_in_pair, max_tokens, block_attempt, seed)

    def _run(self, orders: Sequence[_Order]) -> list[Request]:
        self._hits.clear()
        bodies = [self._body(order) for order in orders]
        taken: list[_Taken] = []
        for order, (path, body) in zip(orders, bodies, strict=True):
            if self._ended.is_set():
                raise ServerFailed("The startup was stopped while it measured.")
            taken.append(self._take(order, path, body))
            if taken[-1].died:
                break
        return [self._request(each) for each in taken]

    def _body(self, order: _Order) -> tuple[str, bytes]:
        plan = self._plan
        return self._adapter.body(
            Ask(
                plan.fixture(order.key.fixture),
                order.seed,
                order.max_tokens,
                plan.sampling,
                self.servers[order.role].model,
                plan.server.request_fields,
                profile=self._profiled(order),
            )
        )

    def _profiled(self, order: _Order) -> bool:
        return self._plan.profile and order.phase is Phase.MEASURE

    def _take(self, order: _Order, path: str, body: bytes) -> _Taken:
        """A server that fails between requests makes a failed request, not an exception: its partner is kept."""
        server, client = self.servers[order.role], self._plan.client
        position = server.position
        server.position += 1
        recording: Recording | None = None
        try:
            # Counters come first: those before the second request are those behind the first, so that the calls between
            # them and either request are the same.
            before = self._hits.pop(server.base_url, None)
            before = self._adapter.counters(server.base_url) if before is None else before
            self._adapter.reset_cache(server.base_url)
            self._adapter.select(server.base_url, self._plan.arm(order.role))
            drawn_mj = self._energy_mj()
            recording = self._client.record(_call(server, client, path, body))
            energy_mj = difference_mj(drawn_mj, self._energy_mj())
            if recording.outcome in _BROKEN and (death := _death(server)):
                return _Taken(order, recording, position, {}, death, died=True)
            waited = self._left_alone(recording, client.timeout_s)
            after = None if before is None else self._adapter.counters(server.base_url)
            if after is not None:
                self._hits[server.base_url] = after
            counters = _difference(before, after)
            return _Taken(order, recording, position, counters, energy_mj=energy_mj, waited=waited)
        except ServerFailed as error:
            death = _death(server)
            return _Taken(order, recording, position, {}, death or str(error), died=bool(death))

    def _left_alone(self, recording: Recording, most_s: float) -> str:
        """A server that is busy is asked nothing more until it wants to be, at most as long as it may be silent; what
        was done, in words. The request has failed: nothing that is measured waits for this.
        """
        wanted_s = parse(recording).retry_after_s if recording.received.startswith(_BUSY) else None
        if wanted_s is None:
            return ""
        self._ended.wait(min(wanted_s, most_s))
        cut = f", of which {most_s:g} s (client.timeout_s) were" if wanted_s > most_s else ""
        return f"Retry-After {wanted_s:g} s{cut} waited for"

    def _request(self, taken: _Taken) -> Request:
        order, exchange = taken.order, _exchange(taken)
        context = Context(
            campaign_id=self._attempt.campaign_id,
            startup=self._attempt.startup,
            startup_attempt=self._attempt.number,
            key=order.key,
            block_attempt=order.block_attempt,
            role=order.role,
            arm=self._plan.arm(order.role).name,
            phase=order.phase,
            position=taken.position,
            order_in_pair=order.order_in_pair,
            max_tokens=order.max_tokens,
            counters=taken.counters,
            profiled=self._profiled(order),
            sent_seed=order.seed,
            prompt_state=self._plan.server.prompt_state,
        )
        request = observe(exchange, read(exchange.events), context)
        source = None if taken.energy_mj is None else EnergySource.COUNTER
        return replace(request, energy_mj=taken.energy_mj, energy_source=source)


def _call(server: RunningServer, client: ClientPlan, path: str, body: bytes) -> Call:
    return Call(server.base_url, path, body, client.timeout_s, client.keep_alive, server.headers, server.proxy)


def _exchange(taken: _Taken) -> Exchange:
    """The answer, or why there is none. A complete answer stays one whatever the server did afterwards."""
    if taken.recording is None:
        now_ns = time.monotonic_ns()
        reason = Reason.SERVER_DIED if taken.died else Reason.HTTP_ERROR
        return Exchange(now_ns, now_ns, now_ns, None, (), reason, taken.fault)
    exchange = parse(taken.recording)
    if taken.died and exchange.failure is not None:
        return replace(exchange, failure=Reason.SERVER_DIED, message=f"{exchange.message}. {taken.fault}")
    return replace(exchange, message=f"{exchange.message}; {taken.waited}") if taken.waited else exchange


def _difference(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> dict[str, int]:
    """Zeros are kept: a schedule without a hit is what a reader looks for; a refusal that was not met says nothing.

    Empty where the server has no counters.
    """
    if before is None or after is None:
        return {}
    added = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in added.items() if count or not is_refusal(name)}


def _death(server: RunningServer) -> str:
    deadline = time.monotonic() + _DEATH_S
    while not (death := server.death()) and server.tree and time.monotonic() < deadline:
        time.sleep(0.05)
    return death

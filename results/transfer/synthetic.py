"""Campaigns whose truth is known: facts made from scripted trajectories and times, as a driver would record them.

Used where a report must be checked against figures that were put in: tests of statistics and tables, the scale
benchmark, the examples of the documentation. Nothing here measures anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from campaigns.exactness.compare import compare
from campaigns.hashes import counts_sha256, token_sha256
from campaigns.order import blocks, life_warmups
from campaigns.plan import Block, CampaignPlan, PairKey, Phase, Role, Step
from campaigns.provenance import METHODOLOGY_VERSION, arm_facts, canonical_json, sha256_text
from campaigns.records import (
    Calibration,
    Campaign,
    CampaignStatus,
    DeviceSample,
    EnergySource,
    Process,
    Request,
    Round,
    Stamp,
    Startup,
    StartupEnd,
    StartupStatus,
)
from campaigns.seeds import measured_seed, warmup_seed
from results.store.writer import Store
from results.transfer.scripts import WAKE_NS, Scripts, rounds

_GAP_NS = 2_000_000  # between the end of one request and the start of the next
CREATED = "2026-01-02T03:04:05+00:00"


@lru_cache(maxsize=256)
def _ids(seed: int, num_tokens: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, 50_000, num_tokens).tolist())


@dataclass
class Driver:
    """Records a plan as the loop would, by script. One clock, one position counter per server life."""

    store: Store
    plan: CampaignPlan
    scripts: Scripts
    fingerprint: Mapping[str, str] = field(default_factory=lambda: {"host.device_names": "scripted"})
    created_utc: str = CREATED
    calibration: Calibration | None = Calibration(2000, 110_000, 400_000, 800, 20_000, 2_000)  # noqa: RUF009  # frozen
    samples: bool = False
    run_number: int = 1
    _clock_ns: int = 10**12
    _position: int = 0

    def run(self) -> str:
        campaign = self.campaign()
        self.store.begin(campaign)
        self.store.status(campaign.campaign_id, CampaignStatus.RUNNING)
        for startup in range(self.plan.startups):
            self.life(campaign.campaign_id, startup, 1, blocks(self.plan, startup))
        self.store.status(campaign.campaign_id, CampaignStatus.COMPLETE)
        return campaign.campaign_id

    def campaign(self) -> Campaign:
        plan = canonical_json(asdict(self.plan))
        arms = {f"arm.{role}": canonical_json(arm_facts(self.plan.arm(role))) for role in Role}
        marks: dict[str, Any] = {"order": self.plan.order, "methodology_version": str(METHODOLOGY_VERSION)}
        return Campaign(
            campaign_id=sha256_text(f"{plan}{self.run_number}{sorted(self.fingerprint.items())}")[:12],
            name=self.plan.name,
            created_utc=self.created_utc,
            methodology_version=METHODOLOGY_VERSION,
            config_json=plan,
            config_sha256=sha256_text(plan),
            plan_json=plan,
            fingerprint={**arms, **marks, **self.fingerprint},
            provenance={"versions": {"python": "3.11"}},
        )

    def life(self, campaign_id: str, startup: int, attempt: int, todo: tuple[Block, ...]) -> None:
        self.start(campaign_id, startup, attempt)
        for step in self._warmup_steps(todo[0], life_warmups(self.plan)):
            self.store.request(self.request(campaign_id, step, attempt, 0))
        for block in todo:
            self.block(campaign_id, block, attempt)
        self.store.startup_end(campaign_id, startup, attempt, StartupEnd(StartupStatus.COMPLETE, self.created_utc))

    def start(self, campaign_id: str, startup: int, attempt: int) -> None:
        self._position = 0
        pid = 1000 + 10 * startup + attempt
        self.store.startup(
            Startup(
                campaign_id=campaign_id,
                startup=startup,
                attempt=attempt,
                role=None,
                created_utc=self.created_utc,
                boot_id="boot-1",
                host="scripted-host",
                device_uuids=("GPU-0",),
                processes=(Process(pid, 5000 + pid, "server"),),
                ready_ns=1_500_000_000,
                identity={"server": "scripted", "libraries": [{"rank": 0, "path": "lib.so", "sha256": "ab" * 32}]},
                environment={"OMP_NUM_THREADS": "1"},
                command=("server", "--port", "0"),
                calibration=self.calibration,
            )
        )

    def block(self, campaign_id: str, block: Block, startup_attempt: int, *, stop_after: int | None = None) -> None:
        """All requests of the block; `stop_after` ends it early, as a killed driver would."""
        attempt = self.store.block(campaign_id, block, startup_attempt)
        seen: dict[PairKey, Request] = {}
        for step in itertools.islice(self._steps(block), stop_after):
            request = self.request(campaign_id, step, startup_attempt, attempt)
            self.store.request(request)
            if request.phase is Phase.MEASURE:
                self._pair(request, seen.setdefault(request.key, request))
            if self.samples:
                self.store.samples(campaign_id, block.startup, startup_attempt, [self._sample(request)])

    def _pair(self, request: Request, earlier: Request) -> None:
        if request is not earlier:
            both = {r.role: r for r in (request, earlier)}
            self.store.pair(compare(both[Role.CONTROL], both[Role.CANDIDATE], self.plan.required_exactness))

    def request(self, campaign_id: str, step: Step, startup_attempt: int, block_attempt: int) -> Request:
        warmup = step.order_in_pair < 0
        script = self.scripts(step, block_attempt)
        made = rounds(script, self._position)
        send = self._clock_ns
        first = send + round(script.ttft_ms * 1e6)
        decode_ns = sum(r.engine_ns or 0 for r in made)
        end = first + decode_ns + script.client_delay_ns
        self._clock_ns = end + _GAP_NS
        self._position += 1
        ids = _ids(script.token_seed, script.trajectory.tokens)
        spec = [r for r in made if r.kind == "spec"]
        fixture = self.plan.fixture(step.key.fixture)
        return Request(
            campaign_id=campaign_id,
            startup=step.key.startup,
            startup_attempt=startup_attempt,
            key=step.key,
            block_attempt=block_attempt,
            role=step.role,
            arm=self.plan.arm(step.role).name,
            phase=Phase.WARMUP if warmup else Phase.MEASURE,
            position=self._position,
            order_in_pair=None if warmup else step.order_in_pair,
            prompt_sha256=token_sha256(range(100)),
            prompt_tokens=100,
            max_tokens=fixture.max_tokens or 16384,
            sched_ns=send - 50_000,
            send_ns=send,
            first_event_ns=first - 1000,
            first_content_ns=first,
            last_content_ns=first + decode_ns,
            end_ns=end,
            first_tokens=1,
            rounds=made,
            n_rounds=len(spec),
            n_q1_steps=len(made) - len(spec),
            completion_tokens=script.trajectory.tokens,
            cached_tokens=script.cached_tokens,
            finish_reason=script.finish_reason,
            text=f"answer {script.token_seed}",
            reasoning_text="",
            tool_calls_json="",
            token_ids=ids,
            token_sha256=token_sha256(ids),
            emitted_sha256=counts_sha256([r.emitted for r in made]),
            accepted_sha256=counts_sha256([r.accepted for r in spec]),
            drafted_sha256=counts_sha256([r.drafted for r in spec]),
            engine_queue_ns=10_000,
            engine_prefill_ns=round(script.ttft_ms * 1e6) - 60_000,
            engine_decode_ns=decode_ns,
            counters={f"{op}/{name}": len(made) for op, name in self.plan.arm(step.role).schedules},
            admissible=script.admissible,
            reasons=script.reasons,
            http_status=200,
            min_sm_clock_mhz=script.sm_clock_mhz,
            median_sm_clock_mhz=script.sm_clock_mhz,
            first_characters=4,
            stamp=Stamp.KERNEL,
            first_wake_ns=WAKE_NS,
            last_wake_ns=WAKE_NS,
            energy_mj=None if script.watts is None else round(script.watts * (end - send) * 1e-6),
            energy_source=None if script.watts is None else EnergySource.COUNTER,
            profile=None if warmup else script.profile,
            sent_seed=self._seed(step),
        )

    def _seed(self, step: Step) -> int:
        if step.order_in_pair < 0:
            return warmup_seed(self.plan, step.key, step.key.repeat)
        return measured_seed(self.plan, step.key)

    def _steps(self, block: Block) -> Iterator[Step]:
        yield from self._warmup_steps(block, block.warmups)
        yield from block.steps

    def _warmup_steps(self, block: Block, count: int) -> Iterator[Step]:
        for role in Role:
            for turn in range(count):
                yield Step(PairKey(block.startup, block.fixture, block.seed, turn), role, -1)

    def _sample(self, request: Request) -> DeviceSample:
        clock = request.median_sm_clock_mhz or 1980
        return DeviceSample(request.send_ns, "GPU-0", clock, 2619, 350_000, 55, 0, 10**10, 97.0)


def without_engine(request: Request) -> Request:
    """The same request from a server that reports no rounds of its own: only what the client saw is left."""
    seen = tuple(
        Round(r.index, client_ns=r.client_ns, client_tokens=r.client_tokens, coalesced=r.coalesced, wake_ns=r.wake_ns)
        for r in request.rounds
    )
    return replace(
        request,
        rounds=seen,
        accepted_sha256=None,
        drafted_sha256=None,
        engine_queue_ns=None,
        engine_prefill_ns=None,
        engine_decode_ns=None,
    )

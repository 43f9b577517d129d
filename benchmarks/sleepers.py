"""Startups whose servers sleep for as long as one would compute: in the driver's process, or as an actor on a node."""

from __future__ import annotations

import pickle
import random
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from campaigns.plan import Block, Fixture, Phase, Role, Step
from campaigns.records import Request, Startup, StartupEnd, StartupStatus
from orchestrator.startups.stand import Assignment
from orchestrator.startups.startup import StandActor
from results.transfer.synthetic import CREATED

ANSWERS, CPU_S = "answers.pickle", "cpu_s"  # files of an output's folder, and of a startup's
PAIRS, WARMUPS, FIXTURES, STARTUP_S = 4, 1, 2, 5.0
REQUESTS = FIXTURES * 2 * (PAIRS + WARMUPS)  # of a startup


@dataclass
class Sleeper:
    """What a driver asks of a startup. `answers` are requests as bytes, `mean_s` is how long one takes."""

    campaign_id: str
    startup: int
    attempt: int
    answers: Mapping[Role, bytes]
    mean_s: float
    uuids: tuple[str, ...] = ()
    position: int = 0

    @property
    def waits_s(self) -> list[float]:
        """Answers differ, so that nobody marches in step."""
        chance = random.Random(self.startup)
        return [self.mean_s * chance.uniform(0.5, 1.5) for _ in range(REQUESTS)]

    def start(self) -> Startup:
        time.sleep(STARTUP_S)
        own = (self.campaign_id, self.startup, self.attempt, None, CREATED, "boot", socket.gethostname())
        return Startup(*own, self.uuids, (), 1_000_000_000, {}, {}, ())

    def token_ids(self, fixtures: Sequence[Fixture]) -> dict[str, Any]:
        return {fixture.id: None for fixture in fixtures}

    def capacity(self) -> int:
        return 32768

    def identity(self) -> dict[str, Any]:
        return {}

    def samples(self) -> list[Any]:
        return []

    def warm(self, block: Block, count: int, roles: Sequence[Role], budget: int, number: int) -> list[Request]:
        steps = [replace(block.steps[0], role=role) for _ in range(count) for role in roles]
        return [self._answer(step, number, Phase.WARMUP) for step in steps]

    def run(self, steps: Sequence[Step], budget: int, number: int) -> list[Request]:
        return [self._answer(step, number, Phase.MEASURE) for step in steps]

    def _answer(self, step: Step, number: int, phase: Phase) -> Request:
        time.sleep(self.waits_s[self.position % REQUESTS])
        self.position += 1
        request: Request = pickle.loads(self.answers[step.role])  # noqa: S301  # this run's driver made it
        return replace(
            request,
            startup=self.startup,
            startup_attempt=self.attempt,
            key=step.key,
            block_attempt=number,
            phase=phase,
            position=self.position,
            order_in_pair=step.order_in_pair if phase is Phase.MEASURE else None,
        )

    def stop(self) -> StartupEnd:
        return StartupEnd(StartupStatus.COMPLETE, CREATED)


class SleepingActor(StandActor):
    """On a node, with its real claim, locks, checks and end; only the server sleeps."""

    def __init__(self, assignment: Assignment, node_id: str) -> None:
        super().__init__(assignment, node_id)
        mean_s, answers = pickle.loads((assignment.workdir.parent / ANSWERS).read_bytes())  # noqa: S301  # this run's driver made it
        self._sleeper = Sleeper(assignment.campaign_id, assignment.startup, assignment.attempt, answers, mean_s)

    def start(self) -> Startup:
        assert self._lease is not None
        self._sleeper.uuids = self._lease.uuids
        return self._sleeper.start()

    def token_ids(self, fixtures: Sequence[Fixture]) -> dict[str, Any]:
        return self._sleeper.token_ids(fixtures)

    def capacity(self) -> int:
        return self._sleeper.capacity()

    def identity(self) -> dict[str, Any]:
        return self._sleeper.identity()

    def samples(self) -> list[Any]:
        return self._sleeper.samples()

    def warm(self, block: Block, count: int, roles: Sequence[Role], budget: int, number: int) -> list[Request]:
        return self._sleeper.warm(block, count, roles, budget, number)

    def run(self, steps: Sequence[Step], budget: int, number: int) -> list[Request]:
        return self._sleeper.run(steps, budget, number)

    def stop(self) -> StartupEnd:
        (self.assignment.workdir / CPU_S).write_text(str(time.process_time()))
        return super().stop()

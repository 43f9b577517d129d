"""What a scripted request answers and how long everything takes: from totals of an answer to its rounds.

Knows no campaign and no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from campaigns.plan import Step
from campaigns.reasons import Reason
from campaigns.records import Profile, Round

Q = 7  # proposals of a full draft
_Q1_NS = 1_000_000  # a narrow step
WAKE_NS = 60_000  # from an arrival until the client had it


@dataclass(frozen=True)
class Trajectory:
    """Totals of one answer: `tokens` with the first one, speculative rounds, accepted drafts, proposals.

    What the rounds emit is accepted + 1 each; what is missing to `tokens` was cut from the last round, what is beyond
    it came from narrow steps.
    """

    tokens: int
    rounds: int
    accepted: int
    drafted: int | None = None  # all proposals; None: seven in every round

    @property
    def residual(self) -> int:
        return self.tokens - 1 - self.accepted - self.rounds


@dataclass(frozen=True)
class Script:
    """One request: what it answers, and how long everything takes."""

    trajectory: Trajectory
    round_ms: float  # request-average round of the engine
    ttft_ms: float = 100.0
    token_seed: int = 0
    round_noise: float = 0.0  # sd of single rounds, relative; the average stays exact
    growth: float = 0.0  # the last round is (1 + growth) as long as the mean, the first as much shorter
    client_delay_ns: int = 100_000
    finish_reason: str = "stop"
    reasons: tuple[Reason, ...] = ()
    admissible: bool = True
    cached_tokens: int | None = 0
    sm_clock_mhz: int | None = None
    watts: float | None = None  # of devices that count their energy
    profile: Profile | None = None


Scripts = Callable[[Step, int], Script]  # (step, block attempt)


def counts(trajectory: Trajectory) -> tuple[list[int], list[int], list[int]]:
    """(drafted, accepted, emitted) per speculative round, spread evenly; the last round carries the cut."""
    n, cut = trajectory.rounds, max(0, -trajectory.residual)
    last = min(Q, max(cut, round(trajectory.accepted / n)))
    accepted = [*_spread(trajectory.accepted - last, n - 1), last]
    emitted = [a + 1 for a in accepted]
    emitted[-1] -= cut
    drafted = _spread(trajectory.drafted if trajectory.drafted is not None else Q * n, n)
    return [max(d, a) for d, a in zip(drafted, accepted, strict=True)], accepted, emitted


def _spread(total: int, n: int) -> list[int]:
    return [total * (i + 1) // n - total * i // n for i in range(n)]


def durations_ns(script: Script, n: int, num_q1: int, seed: int) -> list[int]:
    """n round times that, with the narrow steps behind them, make the request average `round_ms`."""
    rng = np.random.default_rng(seed)
    shape = 1 + script.round_noise * rng.standard_normal(n) + script.growth * np.linspace(-1, 1, n)
    total_ns = script.round_ms * 1e6 * n - num_q1 * _Q1_NS
    ends = np.round(np.cumsum(shape) / shape.sum() * total_ns).astype(np.int64)
    steps: list[int] = np.diff(ends, prepend=0).tolist()
    return steps


def rounds(script: Script, seed: int) -> tuple[Round, ...]:
    """The seed draws noise alone: without any, equal scripts have equal rounds."""
    shape = Script(script.trajectory, script.round_ms, round_noise=script.round_noise, growth=script.growth)
    return engine_rounds(shape, seed if script.round_noise else 0)


@lru_cache(maxsize=256)
def engine_rounds(script: Script, seed: int) -> tuple[Round, ...]:
    drafted, accepted, emitted = counts(script.trajectory)
    num_q1 = max(0, script.trajectory.residual)
    spec = [
        Round(i, "spec", ns, e, False, ns, ns // 10, ns * 8 // 10, ns // 20, ns // 20, Q + 1, d, a, e, WAKE_NS)
        for i, (ns, d, a, e) in enumerate(
            zip(durations_ns(script, len(drafted), num_q1, seed), drafted, accepted, emitted, strict=True), 1
        )
    ]
    q1 = [
        Round(len(spec) + i, "q1", _Q1_NS, 1, False, _Q1_NS, emitted=1, rows=1, wake_ns=WAKE_NS)
        for i in range(1, num_q1 + 1)
    ]
    return (*spec, *q1)

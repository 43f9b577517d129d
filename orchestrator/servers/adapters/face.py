"""What the control plane asks of a server, whoever wrote it.

An adapter is stateless and speaks to a server by its base URL. What a server lacks is None or an empty answer, never
an exception and never a guess: exceptions are for a server that has a route and fails to serve it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from campaigns.plan import Arm, Fixture, Pairs, Sampling, ServerPlan


@dataclass(frozen=True)
class Launch:
    """How to start a server. `env` is added to the environment that the launcher hands down."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Ask:
    """One request as the plan wants it."""

    fixture: Fixture
    seed: int
    max_tokens: int
    sampling: Sampling
    model: str
    extra: Pairs = ()  # (name, JSON) laid over ours, null leaves one out: `ServerPlan.request_fields`
    profile: bool = False


@dataclass(frozen=True)
class Capabilities:
    """Which optional routes a live server offers. What its answers lack shows in the requests themselves."""

    identity: bool
    counters: bool
    tokenize: bool
    max_model_len: bool

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name, offered in vars(self).items() if not offered)


class Adapter(Protocol):
    name: str
    switches: bool  # whether one server can serve both arms of an A/B
    tells: frozenset[str]  # parts of its identity that the server alone knows
    restores_prompts: bool  # whether it knows `server.prompt_state`
    profile_fields: ClassVar[
        Mapping[str, Any] | None
    ]  # what asks for a request's profile; None where a server has none

    def launch(self, plan: ServerPlan, arms: tuple[Arm, ...], port: int, workdir: Path) -> Launch | None:
        """None where the server is somebody else's. UsageError when one server cannot be all these arms."""

    def select(self, base_url: str, arm: Arm) -> None:
        """Make the server run this arm and prove it by reading back; nothing where an arm is a server."""

    def counters(self, base_url: str) -> dict[str, int] | None:
        """Hits and refusals since the start by their names in `campaigns.routes`, summed over ranks."""

    def identity(self, base_url: str) -> dict[str, Any]:
        """What the server says of itself; empty when it says nothing."""

    def tokenize(self, base_url: str, fixture: Fixture, model: str) -> tuple[int, ...] | None:
        """The server's own ids of the fixture's prompt."""

    def max_model_len(self, base_url: str) -> int | None: ...

    def body(self, ask: Ask) -> tuple[str, bytes]:
        """(path, JSON body) of the measured request; the fixture's part is passed on byte for byte."""

    def reset_cache(self, base_url: str) -> None:
        """Forget earlier prompts, where the server has a cache and a way to."""


def discover(adapter: Adapter, base_url: str, fixture: Fixture, model: str) -> Capabilities:
    """Ask a ready server what it offers, without generating anything."""
    return Capabilities(
        identity=bool(adapter.identity(base_url)),
        counters=adapter.counters(base_url) is not None,
        tokenize=adapter.tokenize(base_url, fixture, model) is not None,
        max_model_len=adapter.max_model_len(base_url) is not None,
    )

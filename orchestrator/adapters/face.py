"""What the control plane asks of a server, whoever wrote it.

An adapter is stateless and speaks to a server by its base URL. What a server lacks is None or an empty answer, never
an exception and never a guess: exceptions are for a server that has a route and fails to serve it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from campaigns.plan import Arm, Fixture, Sampling, ServerPlan
from campaigns.records import Request


@dataclass(frozen=True)
class Launch:
    """How to start a server. `env` is added to the environment that the launcher hands down."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Capabilities:
    """What one live server was seen to offer."""

    switch: bool
    identity: bool
    tokenize: bool
    max_model_len: bool
    counters: bool
    token_ids: bool | None = None  # the rest is known once a request was answered
    usage: bool | None = None
    cached_tokens: bool | None = None
    engine_rounds: bool | None = None
    accepted: bool | None = None

    def missing(self) -> tuple[str, ...]:
        """Names of what the server was seen to lack."""
        return tuple(name for name, value in vars(self).items() if value is False)


class Adapter(Protocol):
    name: str
    switches: bool  # whether one server can serve both arms of an A/B

    def launch(self, plan: ServerPlan, arms: tuple[Arm, ...], port: int, workdir: Path) -> Launch | None:
        """None where the server is somebody else's. UsageError when one server cannot be all these arms."""

    def select(self, base_url: str, arm: Arm) -> None:
        """Make the server run this arm and prove it by reading back; nothing where an arm is a server."""

    def counters(self, base_url: str) -> dict[str, int] | None:
        """ "operator/schedule" to hits since the start, summed over ranks."""

    def identity(self, base_url: str) -> dict[str, Any]:
        """What the server says of itself; empty when it says nothing."""

    def tokenize(self, base_url: str, fixture: Fixture, model: str) -> tuple[int, ...] | None:
        """The server's own ids of the fixture's prompt."""

    def max_model_len(self, base_url: str) -> int | None: ...

    def body(self, fixture: Fixture, seed: int, max_tokens: int, sampling: Sampling, model: str) -> tuple[str, bytes]:
        """(path, JSON body) of the measured request; the fixture's part is passed on byte for byte."""

    def reset_cache(self, base_url: str) -> None:
        """Forget earlier prompts, where the server has a cache and a way to."""


def discover(adapter: Adapter, base_url: str, fixture: Fixture, model: str) -> Capabilities:
    """Ask a ready server what it offers, without generating anything."""
    return Capabilities(
        switch=adapter.switches,
        identity=bool(adapter.identity(base_url)),
        tokenize=adapter.tokenize(base_url, fixture, model) is not None,
        max_model_len=adapter.max_model_len(base_url) is not None,
        counters=adapter.counters(base_url) is not None,
    )


def with_answers(found: Capabilities, requests: Iterable[Request]) -> Capabilities:
    """What the answered requests add; a thing counts as offered only if every one of them carried it."""
    answered = [request for request in requests if request.first_content_ns is not None]
    if not answered:
        return found
    return Capabilities(
        switch=found.switch,
        identity=found.identity,
        tokenize=found.tokenize,
        max_model_len=found.max_model_len,
        counters=found.counters,
        token_ids=all(request.token_ids is not None for request in answered),
        usage=all(request.completion_tokens is not None for request in answered),
        cached_tokens=all(request.cached_tokens is not None for request in answered),
        engine_rounds=all(request.engine_decode_ns is not None for request in answered),
        accepted=all(request.accepted_sha256 is not None for request in answered),
    )

"""The part of OpenAI's dialect that every adapter shares, with vLLM's extensions where a server has them.

Token ids come from `return_token_ids` alone, prompts are counted by the server's own `/tokenize`; a server without
them is asked for nothing in their place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from campaigns.errors import UsageError
from campaigns.plan import Arm, Fixture
from orchestrator.servers import fields
from orchestrator.servers.adapters.control import ServerRefused, ask_json
from orchestrator.servers.adapters.face import Ask

_TOKENIZED = ("prompt", "messages", "tools", "chat_template_kwargs")


class OpenAIServer:
    """Everything but starting it."""

    name = "openai"
    switches = False
    tells: frozenset[str] = frozenset()
    strict = False  # whether a refused /tokenize is a fault rather than another dialect
    request_fields: ClassVar[Mapping[str, Any]] = {"return_token_ids": True}
    restores_prompts = False
    profile_fields: ClassVar[Mapping[str, Any] | None] = None

    def select(self, base_url: str, arm: Arm) -> None:
        return None

    def counters(self, base_url: str) -> dict[str, int] | None:
        return None

    def identity(self, base_url: str) -> dict[str, Any]:
        return {}

    def reset_cache(self, base_url: str) -> None:
        return None

    def tokenize(self, base_url: str, fixture: Fixture, model: str) -> tuple[int, ...] | None:
        """Another dialect's route of the same name refuses our fields or finds no tokens: such a server has none."""
        body = json.loads(fixture.body)
        if isinstance(body.get("prompt"), list):
            return tuple(body["prompt"])
        asked = {"model": model, **{name: body[name] for name in _TOKENIZED if name in body}}
        if fixture.chat:
            asked["add_generation_prompt"] = True
        try:
            answer = ask_json(base_url, "POST", "/tokenize", asked)
        except ServerRefused:
            if self.strict:
                raise
            return None
        try:
            return (fields.ids(answer, "tokens") if isinstance(answer, dict) else None) or None
        except fields.Malformed:
            return None  # another dialect's route; one that does not know our field answers with an empty list

    def max_model_len(self, base_url: str) -> int | None:
        answer = ask_json(base_url, "GET", "/v1/models")
        try:
            models = fields.mappings(answer, "data") if isinstance(answer, dict) else None
            return fields.whole(models[0], "max_model_len", fields.MOST_TOKENS) if models else None
        except fields.Malformed:
            return None  # another dialect's list

    def body(self, ask: Ask) -> tuple[str, bytes]:
        ours: dict[str, Any] = {
            "model": ask.model,
            "max_tokens": ask.max_tokens,
            "temperature": ask.sampling.temperature,
            "top_k": ask.sampling.top_k,
            "top_p": ask.sampling.top_p,
            "min_p": ask.sampling.min_p,
            "seed": ask.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.request_fields,
            **(self.profile_fields or {} if ask.profile else {}),
        }
        ours |= {name: json.loads(value) for name, value in ask.extra}
        ours = {name: value for name, value in ours.items() if value is not None}
        path = "/v1/chat/completions" if ask.fixture.chat else "/v1/completions"
        return path, _joined(ask.fixture, ours)


def _joined(fixture: Fixture, ours: dict[str, Any]) -> bytes:
    """One JSON object: the fixture's text as it stands (its key order reaches the model), then our fields."""
    twice = sorted(json.loads(fixture.body).keys() & ours.keys())
    if twice:
        raise UsageError(f"fixture {fixture.id}: {', '.join(twice)} belongs to the campaign, not to the fixture")
    inner = fixture.body.strip()[1:-1].strip()
    return f"{{{inner},{json.dumps(ours)[1:-1]}}}".encode()

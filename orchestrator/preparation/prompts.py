"""Token ids of a campaign's prompts, counted before the lease from the checkpoint's tokenizer files; token budgets.

Deliberately not the server's code: each startup compares these ids with the server's `/tokenize`, which only proves
something because the two were made apart. Knows nothing of servers or leases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from campaigns.errors import UsageError
from campaigns.plan import Fixture


@dataclass(frozen=True)
class Checkpoint:
    """The part of a model folder that prompts need."""

    tokenizer: Tokenizer
    template: str
    special_tokens: Mapping[str, str]
    capacity: int  # tokens of prompt and answer together

    @classmethod
    def open(cls, model: Path) -> Checkpoint | None:
        """None where the folder holds no tokenizer (a foreign server's model name, say)."""
        if not (model / "tokenizer.json").is_file():
            return None
        settings = _read(model / "tokenizer_config.json")
        separate = model / "chat_template.jinja"
        told = separate.read_text(encoding="utf-8") if separate.is_file() else settings.get("chat_template")
        config = _read(model / "config.json")
        capacity = config.get("text_config", config).get("max_position_embeddings", 0)
        special = {name: _content(settings.get(name)) for name in ("bos_token", "eos_token")}
        return cls(_tokenizer(model / "tokenizer.json"), _template(told), special, capacity)

    def ids(self, fixture: Fixture) -> tuple[int, ...]:
        """Ids of the fixture's prompt as the server must see them."""
        body = json.loads(fixture.body)
        if not fixture.chat and isinstance(body["prompt"], list):
            return tuple(body["prompt"])
        if not fixture.chat:
            return tuple(self.tokenizer.encode(body["prompt"]).ids)
        return tuple(self.tokenizer.encode(self._render(fixture.id, body), add_special_tokens=False).ids)

    def encode(self, text: str) -> list[int]:
        """Ids of bare text, nothing added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _compiled(self) -> Template:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        return environment.from_string(self.template)

    def _render(self, fixture_id: str, body: Mapping[str, Any]) -> str:
        knobs = dict(body.get("chat_template_kwargs", {}))
        try:
            text: str = self._compiled.render(
                messages=body["messages"],
                tools=body.get("tools"),
                add_generation_prompt=True,
                **self.special_tokens,
                **knobs,
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise UsageError(f"fixture {fixture_id}: the chat template refuses its messages: {error}") from error
        return text


def budget(fixture: Fixture, num_prompt_tokens: int, capacity: int) -> int:
    """`max_tokens` of a request: the fixture's cap, else all that is left. Input is never truncated."""
    left = capacity - num_prompt_tokens
    if left < 1:
        raise UsageError(
            f"fixture {fixture.id}: {num_prompt_tokens} prompt tokens leave no room in a capacity of {capacity}; "
            "shorten the prompt or serve with a larger --max-model-len"
        )
    if fixture.max_tokens is not None and fixture.max_tokens > left:
        raise UsageError(
            f"fixture {fixture.id}: max_tokens={fixture.max_tokens} does not fit: capacity {capacity} minus "
            f"{num_prompt_tokens} prompt tokens leaves {left}"
        )
    return fixture.max_tokens or left


def budget_from_server(fixture: Fixture, num_prompt_tokens: int | None, capacity: int | None) -> int:
    """The budget where no tokenizer files are at hand: from the live server's own count, or the fixture's cap."""
    if num_prompt_tokens is not None and capacity is not None:
        return budget(fixture, num_prompt_tokens, capacity)
    if fixture.max_tokens is None:
        raise UsageError(
            f"fixture {fixture.id}: the server has no /tokenize and no tokenizer files are known, so its budget cannot "
            "be counted; give the fixture a max_tokens, or all of them one with campaign.max_tokens"
        )
    return fixture.max_tokens


def _tokenizer(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise UsageError(f"{path}: no tokenizer ({error}); fetch the checkpoint again") from error
    tokenizer.no_truncation()  # some published files ask for it, and servers do not follow
    tokenizer.no_padding()
    return tokenizer


def _template(told: Any) -> str:
    """Some checkpoints have several templates under names."""
    if isinstance(told, list):
        return next((str(entry["template"]) for entry in told if entry["name"] == "default"), "")
    return told or ""


def _tojson(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
    """Jinja's own would escape for HTML, which no server does with chat templates."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **how)


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise UsageError(f"{path}: no JSON ({error}); fetch the checkpoint again") from error
    if not isinstance(told, dict):
        raise UsageError(f"{path}: a JSON object was expected; fetch the checkpoint again")
    return told


def _content(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, Mapping) else token or ""


def _refuse(message: str) -> None:
    raise TemplateError(message)

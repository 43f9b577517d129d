"""From a request's JSON body to a frozen order: what to generate, how to say it.

Knows OpenAI's and vLLM's field names and this model's limits. Knows no sockets and no engine.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runtime.http import fields
from runtime.http.chat import ChatOrder, read_chat
from runtime.http.errors import ApiError, bad
from runtime.http.grammar import GrammarChecker
from runtime.text.generation import Generation, Sampling
from runtime.text.tokenizer import ChatTemplate, TextTokenizer

_MAX_STOPS = 16
_MAX_SEED = 2**63 - 1
# Fields that would change the answer and that this server does not implement, with the values that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",), "logprobs": (False,), "top_logprobs": (0,),
    "prompt_logprobs": (0,), "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,),
    "logit_bias": ({},), "use_beam_search": (False,), "min_tokens": (0,), "functions": ([],),
    "function_call": ("none",),
}  # fmt: skip


@dataclass(frozen=True)
class ModelCard:
    """What the API process knows of the model that it serves."""

    name: str
    max_model_len: int
    tokenizer: TextTokenizer
    template: ChatTemplate | None
    eos_ids: tuple[int, ...]
    defaults: Sampling
    grammars: GrammarChecker

    @staticmethod
    def read(model_dir: Path, name: str, max_model_len: int) -> ModelCard:
        generation = json.loads((model_dir / "generation_config.json").read_text(encoding="utf-8"))
        eos = generation["eos_token_id"]
        defaults = Sampling(
            temperature=float(generation.get("temperature", 1.0)),
            top_k=int(generation.get("top_k", 0)),
            top_p=float(generation.get("top_p", 1.0)),
            min_p=float(generation.get("min_p", 0.0)),
        )
        return ModelCard(
            name=name,
            max_model_len=max_model_len,
            tokenizer=TextTokenizer(model_dir),
            template=ChatTemplate.of_folder(model_dir),
            eos_ids=tuple(eos) if isinstance(eos, list) else (eos,),
            defaults=defaults,
            grammars=GrammarChecker(model_dir),
        )


@dataclass(frozen=True)
class Order:
    """One request, understood. `chat` is None for a plain completion."""

    generation: Generation
    stops: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    return_token_ids: bool = False
    return_round_details: bool = False
    chat: ChatOrder | None = field(default=None)


def completion_order(body: fields.Body, card: ModelCard) -> Order:
    _check_common(body, card)
    prompt_ids = _prompt_ids(body.get("prompt"), card)
    limit = fields.integer(body, "max_tokens", 1, card.max_model_len)
    return _order(body, card, prompt_ids, 16 if limit is None else limit)


def chat_order(body: fields.Body, card: ModelCard) -> Order:
    _check_common(body, card)
    chat = read_chat(body, card.template, card.grammars)
    limit = fields.integer(body, "max_tokens", 1, card.max_model_len)
    limit = fields.integer(body, "max_completion_tokens", 1, card.max_model_len) or limit
    prompt_ids = tuple(card.tokenizer.encode(chat.prompt, add_special_tokens=False))
    order = _order(body, card, prompt_ids, limit)
    after = card.tokenizer.id_of("</think>") if chat.thinking else None
    generation = replace(order.generation, grammar=chat.grammar, grammar_after=after)
    return replace(order, chat=chat, generation=generation)


def tokens_to_count(body: fields.Body, card: ModelCard) -> list[int]:
    """The ids of a `/tokenize` body, which holds a prompt or messages."""
    if body.get("messages") is not None:
        return card.tokenizer.encode(read_chat(body, card.template, card.grammars).prompt, add_special_tokens=False)
    prompt = fields.text(body, "prompt")
    if prompt is None:
        raise bad("prompt or messages is required", "prompt")
    return card.tokenizer.encode(prompt, fields.boolean(body, "add_special_tokens", True))


def _check_common(body: fields.Body, card: ModelCard) -> None:
    model = fields.text(body, "model")
    if model is not None and model != card.name:
        raise ApiError(
            404, f"model {model!r} is not served here; this server serves {card.name!r}", "model", "model_not_found"
        )
    for name, neutral in _UNSUPPORTED.items():
        fields.refuse_unless(body, name, neutral)


def _prompt_ids(prompt: Any, card: ModelCard) -> tuple[int, ...]:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, list) and len(prompt) > 1 and all(isinstance(each, str | list) for each in prompt):
        raise bad("prompt holds several prompts, and batches are not supported: send one request for each", "prompt")
    if isinstance(prompt, str):
        fields.require_unicode(prompt, "prompt")
        return tuple(card.tokenizer.encode(prompt))
    if prompt is None:
        raise bad("prompt is required", "prompt")
    return fields.token_ids(prompt, "prompt", card.tokenizer.num_ids)


def _order(body: fields.Body, card: ModelCard, prompt_ids: tuple[int, ...], limit: int | None) -> Order:
    options = fields.mapping(body, "stream_options") or {}
    stream = fields.boolean(body, "stream")
    if options and not stream:
        raise bad("stream_options is only allowed with stream=true", "stream_options")
    stop_ids = fields.token_ids(body.get("stop_token_ids") or [], "stop_token_ids", card.tokenizer.num_ids)
    eos_ids = () if fields.boolean(body, "ignore_eos") else card.eos_ids
    generation = Generation(
        prompt_ids=prompt_ids,
        max_tokens=_max_tokens(len(prompt_ids), limit, card.max_model_len),
        sampling=_sampling(body, card.defaults),
        eos_ids=eos_ids + stop_ids,
    )
    return Order(
        generation=generation,
        stops=fields.texts(body, "stop", _MAX_STOPS),
        stream=stream,
        include_usage=fields.boolean(options, "include_usage"),
        return_token_ids=fields.boolean(body, "return_token_ids"),
        return_round_details=fields.boolean(body, "return_round_details"),
    )


def _max_tokens(num_prompt_tokens: int, limit: int | None, max_model_len: int) -> int:
    room = max_model_len - num_prompt_tokens
    if num_prompt_tokens == 0:
        raise bad("the prompt is empty; send at least one token", "prompt")
    if room < 1 or (limit is not None and limit > room):
        wanted = "" if limit is None else f" and max_tokens={limit}"
        message = (
            f"the prompt has {num_prompt_tokens} tokens{wanted}; prompt and answer may hold {max_model_len} together"
        )
        raise bad(message, "prompt" if room < 1 else "max_tokens", "context_length_exceeded")
    return room if limit is None else limit


def _sampling(body: Mapping[str, Any], defaults: Sampling) -> Sampling:
    temperature = fields.number(body, "temperature", 0.0, 2.0)
    top_k = fields.integer(body, "top_k", -1, 2**31 - 1)
    top_p = fields.number(body, "top_p", 0.0, 1.0)
    min_p = fields.number(body, "min_p", 0.0, 1.0)
    seed = fields.integer(body, "seed", -_MAX_SEED - 1, _MAX_SEED)
    if top_p == 0.0:
        raise bad("top_p must be above 0; use temperature=0 for greedy decoding", "top_p")
    return Sampling(
        temperature=defaults.temperature if temperature is None else temperature,
        top_k=defaults.top_k if top_k is None else max(top_k, 0),
        top_p=defaults.top_p if top_p is None else top_p,
        min_p=defaults.min_p if min_p is None else min_p,
        seed=secrets.randbits(63) if seed is None else seed,
    )

"""From a request's JSON body to a frozen order: what to generate, how to say it.

Knows OpenAI's and vLLM's field names and this model's limits. Knows no sockets and no engine.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runtime.http.errors import ApiError, bad
from runtime.http.requests import fields, known
from runtime.http.requests.chat import ChatOrder, read_chat
from runtime.http.requests.defaults import Defaults
from runtime.http.requests.form import form_grammar
from runtime.http.requests.grammar import GrammarChecker
from runtime.http.requests.penalties import read_penalties
from runtime.http.requests.speculation import MaxDrafts, read_speculation
from runtime.text.generation import Generation, Profiling, Sampling, Speculation
from runtime.text.spelling import Spelling
from runtime.text.tokenizer import ChatTemplate, TextTokenizer
from runtime.text.transcript import NO_STOPS, Stops

_MAX_STOPS = 16
_MAX_SEED = 2**63 - 1
_MAX_LOGPROBS = 20
_MAX_BAD_WORDS, _MAX_BAD_WORD = 128, 256
# vLLM's names of `--logprobs-mode`: the model's own softmax, or the law that the token was drawn from.
_LOGPROBS_MODES = ("raw_logprobs", "processed_logprobs")

# `include_obfuscation` asks for padding against eavesdroppers, which never concerns the words.
_STREAM_OPTIONS = ("include_usage", "continuous_usage_stats", "include_obfuscation")


@dataclass(frozen=True)
class ModelCard:
    """What the API process knows of the model that it serves. `created`: seconds of Unix time when it was ready.

    `speculation` is the selected arm's, for requests that name none.
    """

    name: str
    max_model_len: int
    tokenizer: TextTokenizer
    template: ChatTemplate | None
    defaults: Defaults
    max_drafts: MaxDrafts
    speculation: Speculation
    spelling: Spelling
    grammars: GrammarChecker
    created: int

    @staticmethod
    def read(
        model_dir: Path, name: str, max_model_len: int, speculation: Speculation, max_drafts: MaxDrafts
    ) -> ModelCard:
        spelling = Spelling(model_dir)
        return ModelCard(
            name=name,
            max_model_len=max_model_len,
            tokenizer=TextTokenizer(model_dir),
            template=ChatTemplate.of_folder(model_dir),
            defaults=Defaults.read(model_dir),
            max_drafts=max_drafts,
            speculation=speculation,
            spelling=spelling,
            grammars=GrammarChecker(spelling),
            created=int(time.time()),
        )


@dataclass(frozen=True)
class Order:
    """One request, understood. `chat` is None for a plain completion; `ignored` are fields that nobody knows."""

    generation: Generation
    stops: Stops = NO_STOPS
    stream: bool = False
    include_usage: bool = False
    usage_in_chunks: bool = False
    return_token_ids: bool = False
    return_round_details: bool = False
    tokens_as_ids: bool = False
    skip_special_tokens: bool = True
    ignored: tuple[str, ...] = ()
    chat: ChatOrder | None = field(default=None)


def completion_order(body: fields.Body, card: ModelCard) -> Order:
    ignored = _check_common(body, card, known.PLAIN)
    prompt_ids = _prompt_ids(body, card)
    limit = fields.integer(body, "max_tokens", 1, card.max_model_len)
    order = _order(body, card, prompt_ids, 16 if limit is None else limit)
    form = form_grammar(body)
    generation = replace(
        order.generation,
        grammar=None if form is None else card.grammars.check(*form),
        logprobs=fields.integer(body, "logprobs", 0, _MAX_LOGPROBS),
    )
    return _consistent(replace(order, generation=generation, ignored=ignored))


def chat_order(body: fields.Body, card: ModelCard) -> Order:
    ignored = _check_common(body, card, known.CHAT)
    chat = read_chat(body, card.template, card.grammars)
    limit = fields.integer(body, "max_tokens", 1, card.max_model_len)
    limit = fields.integer(body, "max_completion_tokens", 1, card.max_model_len) or limit
    special = fields.boolean(body, "add_special_tokens")
    prompt_ids = tuple(card.tokenizer.encode(chat.prompt, add_special_tokens=special))
    order = _order(body, card, prompt_ids, limit)
    after = card.tokenizer.id_of("</think>") if chat.thinking else None
    generation = replace(order.generation, grammar=chat.grammar, grammar_after=after, logprobs=_chat_logprobs(body))
    return _consistent(replace(order, chat=chat, generation=generation, ignored=ignored))


def tokens_to_count(body: fields.Body, card: ModelCard) -> list[int]:
    """The ids of a `/tokenize` body, which holds a prompt or messages."""
    if body.get("messages") is not None:
        return card.tokenizer.encode(read_chat(body, card.template, card.grammars).prompt, add_special_tokens=False)
    prompt = fields.text(body, "prompt")
    if prompt is None:
        raise bad("prompt or messages is required", "prompt")
    return card.tokenizer.encode(prompt, fields.boolean(body, "add_special_tokens", True))


def _check_common(body: fields.Body, card: ModelCard, dialect: frozenset[str]) -> tuple[str, ...]:
    """The names that are unknown."""
    model = fields.text(body, "model")
    if model is not None and model != card.name:
        raise ApiError(
            404, f"model {model!r} is not served here; this server serves {card.name!r}", "model", "model_not_found"
        )
    return known.check(body, dialect)


def _chat_logprobs(body: fields.Body) -> int | None:
    wanted, top = fields.boolean(body, "logprobs"), fields.integer(body, "top_logprobs", 0, _MAX_LOGPROBS)
    if top and not wanted:
        raise bad("top_logprobs is only allowed with logprobs=true", "top_logprobs")
    return (top or 0) if wanted else None


def _consistent(order: Order) -> Order:
    """`min_tokens` keeps an answer going, which neither a grammar that is through nor a stop string can."""
    generation = order.generation
    if generation.min_tokens and (generation.grammar is not None or order.stops.strings):
        other = "stop strings" if order.stops.strings else "a form of the answer"
        raise bad(f"min_tokens and {other} are not supported together by this server", "min_tokens")
    return order


def _prompt_ids(body: fields.Body, card: ModelCard) -> tuple[int, ...]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, list) and len(prompt) > 1 and all(isinstance(each, str | list) for each in prompt):
        raise bad("prompt holds several prompts, and batches are not supported: send one request for each", "prompt")
    if isinstance(prompt, str):
        fields.require_unicode(prompt, "prompt")
        return tuple(card.tokenizer.encode(prompt, fields.boolean(body, "add_special_tokens", True)))
    if prompt is None:
        raise bad("prompt is required", "prompt")
    return fields.token_ids(prompt, "prompt", card.tokenizer.num_ids)


def _order(body: fields.Body, card: ModelCard, prompt_ids: tuple[int, ...], limit: int | None) -> Order:
    options = _stream_options(body)
    stream = fields.boolean(body, "stream")
    if (keep := fields.integer(body, "truncate_prompt_tokens", 1, card.max_model_len)) is not None:
        prompt_ids = prompt_ids[-keep:]
    stop_ids = fields.token_ids(body.get("stop_token_ids") or [], "stop_token_ids", card.tokenizer.num_ids)
    eos_ids = () if fields.boolean(body, "ignore_eos") else card.defaults.eos_ids
    generation = Generation(
        prompt_ids=prompt_ids,
        max_tokens=_max_tokens(len(prompt_ids), limit, card),
        sampling=_sampling(body, card.defaults.sampling),
        eos_ids=eos_ids + stop_ids,
        min_tokens=fields.integer(body, "min_tokens", 0, card.max_model_len) or 0,
        allowed_token_ids=_allowed(body, card),
        bad_words=_bad_words(body),
        logprobs_of_sampled_law=_of_sampled_law(body),
        speculation=read_speculation(body, card.speculation, card.max_drafts),
        penalties=read_penalties(body, card.defaults.repetition_penalty, card.tokenizer.num_ids),
        profiling=Profiling() if fields.boolean(body, "profile") else None,
    )
    return Order(
        generation=generation,
        stops=Stops(fields.texts(body, "stop", _MAX_STOPS), fields.boolean(body, "include_stop_str_in_output")),
        stream=stream,
        include_usage=(usage := fields.boolean(options, "include_usage")),
        usage_in_chunks=fields.boolean(options, "continuous_usage_stats") and usage,
        return_token_ids=fields.boolean(body, "return_token_ids"),
        return_round_details=fields.boolean(body, "return_round_details"),
        tokens_as_ids=fields.boolean(body, "return_tokens_as_token_ids"),
        skip_special_tokens=fields.boolean(body, "skip_special_tokens", True),
    )


def _stream_options(body: fields.Body) -> dict[str, Any]:
    options = fields.mapping(body, "stream_options") or {}
    if options and not fields.boolean(body, "stream"):
        raise bad("stream_options is only allowed with stream=true", "stream_options")
    if unknown := sorted(options.keys() - _STREAM_OPTIONS):
        raise bad(f"stream_options has no {unknown[0]!r}; it has {', '.join(_STREAM_OPTIONS)}", "stream_options")
    return options


def _allowed(body: fields.Body, card: ModelCard) -> tuple[int, ...] | None:
    if body.get("allowed_token_ids") is None:
        return None
    ids = fields.token_ids(body["allowed_token_ids"], "allowed_token_ids", card.tokenizer.num_ids)
    if not ids:
        raise bad("allowed_token_ids is empty, so no token could be drawn", "allowed_token_ids")
    return ids


def _bad_words(body: fields.Body) -> tuple[str, ...]:
    words = fields.texts(body, "bad_words", _MAX_BAD_WORDS)
    if longest := next((word for word in words if len(word) > _MAX_BAD_WORD), None):
        raise bad(f"bad_words may have {_MAX_BAD_WORD} characters each, not {len(longest)}", "bad_words")
    return words


def _of_sampled_law(body: fields.Body) -> bool:
    mode = fields.text(body, "logprobs_mode")
    if mode not in (None, *_LOGPROBS_MODES):
        raise bad(f"logprobs_mode must be {' or '.join(_LOGPROBS_MODES)}, not {mode!r}", "logprobs_mode")
    return mode == _LOGPROBS_MODES[1]


def _max_tokens(num_prompt_tokens: int, limit: int | None, card: ModelCard) -> int:
    """The checkpoint's own limit holds for every request, as in vLLM."""
    max_model_len, most = card.max_model_len, card.defaults.max_tokens or card.max_model_len
    room = max_model_len - num_prompt_tokens
    if num_prompt_tokens == 0:
        raise bad("the prompt is empty; send at least one token", "prompt")
    if room < 1 or (limit is not None and limit > room):
        wanted = "" if limit is None else f" and max_tokens={limit}"
        message = (
            f"the prompt has {num_prompt_tokens} tokens{wanted}; prompt and answer may hold {max_model_len} together"
        )
        raise bad(message, "prompt" if room < 1 else "max_tokens", "context_length_exceeded")
    return min(room if limit is None else limit, most)


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

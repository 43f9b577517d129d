"""From stamped events to one reply: the streaming chunks of OpenAI's dialect, with vLLM's and our own additions. Pure.

Content is whatever the server generated, in any channel: text, reasoning, a tool call, or token ids whose text is
still withheld. A role-only or empty delta is not content. What the server did not say stays None; nothing is counted
from text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from campaigns.records import Reason
from orchestrator.measuring.exchange import Event

_REASONING_FIELDS = ("reasoning", "reasoning_content")  # vLLM's name; the older one, SGLang's and llama.cpp's
_FAILED_FINISHES = ("error", "abort")


@dataclass(frozen=True)
class Chunk:
    """One content chunk of the stream."""

    at_ns: int
    coalesced: bool  # shared its arrival with another content chunk
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    token_ids: tuple[int, ...] | None = None
    wake_ns: int = 0  # from its arrival until the client's process had it


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True)
class EngineRound:
    """One entry of `metrics.rounds`; None where the server left a field out."""

    kind: str | None
    rows: int | None
    drafted: int | None
    accepted: int | None
    emitted: int | None
    draft_ns: int | None
    verify_ns: int | None
    sample_ns: int | None
    commit_ns: int | None
    total_ns: int | None


@dataclass(frozen=True)
class EngineMetrics:
    queue_ns: int | None
    prefill_ns: int | None
    decode_ns: int | None
    rounds: tuple[EngineRound, ...] | None


@dataclass(frozen=True)
class Reply:
    first_event_ns: int | None  # of any event, role-only included
    chunks: tuple[Chunk, ...]
    text: str
    reasoning: str
    tool_calls_json: str
    prompt_token_ids: tuple[int, ...] | None
    token_ids: tuple[int, ...] | None  # of all chunks; None when no chunk carried any
    usage: Usage | None
    engine: EngineMetrics | None
    finish_reason: str | None
    failure: Reason | None
    message: str


class MalformedChunk(Exception):
    """A chunk that does not have the dialect's shape; the message names it."""


class _Reader:
    """Collects chunks in order; mutable while the events are read."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.prompt_token_ids: tuple[int, ...] | None = None
        self.usage: Usage | None = None
        self.engine: EngineMetrics | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.error = ""

    def read(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.data == "[DONE]":
                self.done = True
                return
            self._take(event)
            if self.error:
                return

    def _take(self, event: Event) -> None:
        value = _json_object(event.data)
        if event.kind == "error" or value.get("error") or value.get("object") == "error":
            self.error = _error_text(value)
            return
        self.usage = _usage(value) or self.usage
        self.engine = _engine(value) or self.engine
        self.prompt_token_ids = _ids(value.get("prompt_token_ids")) or self.prompt_token_ids
        for choice in _typed(value.get("choices") or [], list, "choices"):
            self._choice(choice, event)

    def _choice(self, choice: Mapping[str, Any], event: Event) -> None:
        self.prompt_token_ids = _ids(choice.get("prompt_token_ids")) or self.prompt_token_ids
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        chunk = _chunk(choice, event)
        if chunk is None:
            return
        last = self.chunks[-1] if self.chunks else None
        shares = last is not None and last.at_ns == chunk.at_ns
        if last is not None and shares:
            self.chunks[-1] = replace(last, coalesced=True)
        self.chunks.append(replace(chunk, coalesced=shares))


def read(events: tuple[Event, ...]) -> Reply:
    """The reply that these events make. Never raises: what is wrong is in `failure` and `message`."""
    reader = _Reader()
    failure: Reason | None = None
    message = ""
    try:
        reader.read(events)
    except MalformedChunk as error:
        failure, message = Reason.MALFORMED_STREAM, str(error)
    if reader.error:
        failure, message = Reason.ERROR_EVENT, reader.error
    elif failure is None:
        failure, message = _ending(reader)
    return Reply(
        first_event_ns=events[0].at_ns if events else None,
        chunks=tuple(reader.chunks),
        text=_join(chunk.text for chunk in reader.chunks),
        reasoning=_join(chunk.reasoning for chunk in reader.chunks),
        tool_calls_json=_tool_calls(reader.chunks),
        prompt_token_ids=reader.prompt_token_ids,
        token_ids=_all_ids(reader.chunks),
        usage=reader.usage,
        engine=reader.engine,
        finish_reason=reader.finish_reason,
        failure=failure,
        message=message,
    )


def _ending(reader: _Reader) -> tuple[Reason | None, str]:
    if reader.finish_reason in _FAILED_FINISHES:
        return Reason.ERROR_EVENT, f"the server ended the answer with finish_reason {reader.finish_reason!r}"
    if reader.finish_reason is None and not reader.done:
        return Reason.MALFORMED_STREAM, "the stream ended with neither a finish_reason nor [DONE]"
    if not reader.chunks:
        return Reason.NO_CONTENT, "the stream held no content in any channel"
    return None, ""


def _chunk(choice: Mapping[str, Any], event: Event) -> Chunk | None:
    """The content of a choice; None for a delta without any."""
    delta = _typed(choice.get("delta") or {}, dict, "delta")
    text = delta.get("content") or choice.get("text") or ""
    reasoning = next((delta[name] for name in _REASONING_FIELDS if delta.get(name)), "")
    tool_calls = tuple(_typed(call, dict, "tool call") for call in delta.get("tool_calls") or ())
    token_ids = _ids(choice.get("token_ids"))
    if not (text or reasoning or tool_calls or token_ids):
        return None
    return Chunk(
        at_ns=event.at_ns,
        coalesced=False,
        text=_typed(text, str, "content"),
        reasoning=_typed(reasoning, str, "reasoning"),
        tool_calls=tool_calls,
        token_ids=token_ids,
        wake_ns=event.wake_ns,
    )


def _all_ids(chunks: Iterable[Chunk]) -> tuple[int, ...] | None:
    """All ids in order; None where no chunk had any. Chunks without theirs show when usage counts more tokens."""
    ids = [chunk.token_ids for chunk in chunks]
    known = [sequence for sequence in ids if sequence is not None]
    return tuple(i for sequence in known for i in sequence) if known else None


def _join(parts: Iterable[str]) -> str:
    """Text of all chunks; a character whose UTF-16 halves came in two chunks is put together again."""
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _tool_calls(chunks: Iterable[Chunk]) -> str:
    """All calls as JSON, put together from their deltas in order of arrival. Call ids are random and are left out."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in (delta for chunk in chunks for delta in chunk.tool_calls):
        call = calls.setdefault(delta.get("index", len(calls)), {"type": "function", "function": {}})
        for name, part in (delta.get("function") or {}).items():
            call["function"][name] = call["function"].get(name, "") + (part or "")
    return json.dumps(list(calls.values()), ensure_ascii=False, separators=(",", ":")) if calls else ""


def _usage(value: Mapping[str, Any]) -> Usage | None:
    usage = value.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        cached_tokens=details.get("cached_tokens"),
    )


def _engine(value: Mapping[str, Any]) -> EngineMetrics | None:
    """Our `metrics`; a server's own, without any of these names, is not ours to interpret."""
    metrics = value.get("metrics")
    if not isinstance(metrics, dict) or not {"rounds", "decode_ns"} & metrics.keys():
        return None
    rounds = metrics.get("rounds")
    return EngineMetrics(
        queue_ns=metrics.get("queue_ns"),
        prefill_ns=metrics.get("prefill_ns"),
        decode_ns=metrics.get("decode_ns"),
        rounds=None if rounds is None else tuple(_engine_round(entry) for entry in _typed(rounds, list, "rounds")),
    )


def _engine_round(entry: Mapping[str, Any]) -> EngineRound:
    return EngineRound(**{name: entry.get(name) for name in EngineRound.__dataclass_fields__})


def _ids(value: Any) -> tuple[int, ...] | None:
    return None if value is None else tuple(_typed(value, list, "token_ids"))


def _json_object(data: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = _typed(json.loads(data), dict, "event")
    except ValueError:
        raise MalformedChunk(f"an event is not JSON: {data[:80]!r}") from None
    return value


def _typed(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise MalformedChunk(f"{what} is {type(value).__name__} and not {kind.__name__}: {str(value)[:80]}")
    return value


def _error_text(value: Mapping[str, Any]) -> str:
    error = value.get("error") or value
    return str(error.get("message", error) if isinstance(error, dict) else error)

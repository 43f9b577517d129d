"""From stamped events to one reply: the streaming chunks of OpenAI's dialect, with vLLM's and our own additions. Pure.

Content is whatever the server generated, in any channel: text, reasoning, a tool call, or token ids whose text is
still withheld. A role-only or empty delta is not content. What the server did not say stays None; nothing is counted
from text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from campaigns.reasons import Reason
from campaigns.records import OperatorTime, Profile
from orchestrator.measuring.calls import CallDelta, call_delta, joined
from orchestrator.measuring.exchange import DONE, Event
from orchestrator.measuring.speculation import Speculation, speculation
from orchestrator.servers import fields
from orchestrator.servers.fields import MOST_NS, MOST_PER_ROUND, MOST_TOKENS, Malformed, Object, whole_text

_REASONING_FIELDS = ("reasoning", "reasoning_content")  # vLLM's name; the older one, SGLang's and llama.cpp's
_KINDS = ("spec", "q1")
COMPUTED, RESTORED = "computed", "restored"
_CLOCKS = ("device", "host")
_FAILED_FINISHES = ("error", "abort")


@dataclass(frozen=True)
class Chunk:
    """One content chunk of the stream."""

    at_ns: int
    coalesced: bool  # shared its arrival with another content chunk
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[CallDelta, ...] = ()
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
    prompt_state: str | None = None  # computed or restored
    profile: Profile | None = None  # of a request that asked for it


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
    speculation: Speculation | None  # of an engine that lists no rounds of ours
    finish_reason: str | None
    failure: Reason | None
    message: str


class _Reader:
    """Collects chunks in order; mutable while the events are read."""

    def __init__(self) -> None:
        self.first_event_ns: int | None = None
        self.chunks: list[Chunk] = []
        self.prompt_token_ids: tuple[int, ...] | None = None
        self.usage: Usage | None = None
        self.usage_chunks = 0  # content chunks that were there when it was told
        self.engine: EngineMetrics | None = None
        self.speculation: Speculation | None = None
        self.whole_ids: tuple[int, ...] | None = None  # SGLang tells all ids of an answer at its end
        self.finish_reason: str | None = None
        self.done = False
        self.error = ""

    def read(self, events: Iterable[Event]) -> None:
        for event in events:
            if _says_nothing(event):
                continue
            self.first_event_ns = event.at_ns if self.first_event_ns is None else self.first_event_ns
            if event.data.strip() == DONE:
                self.done = True
                return
            self._take(event)
            if self.error:
                return

    def _take(self, event: Event) -> None:
        value = fields.parse_object(event.data, "an event")
        if event.kind == "error" or value.get("object") == "error" or _tells_error(value):
            self.error = _error_text(value)
            return
        usage = _usage(value)
        self.engine = _engine(value) or self.engine
        self.speculation = speculation(value) or self.speculation
        self.prompt_token_ids = fields.ids(value, "prompt_token_ids") or self.prompt_token_ids
        self._extension(value)
        for choice in fields.mappings(value, "choices") or ():
            self._choice(choice, event)
        if usage is not None:
            self.usage, self.usage_chunks = usage, len(self.chunks)

    def _extension(self, value: Object) -> None:
        """SGLang's `sglext`: ids of the prompt, and of the answer of each choice."""
        extension = fields.mapping(value, "sglext") or {}
        self.prompt_token_ids = fields.ids(extension, "input_ids") or self.prompt_token_ids
        answers = extension.get("output_ids")
        if isinstance(answers, list) and len(answers) == 1 and isinstance(answers[0], list):
            self.whole_ids = fields.ids({"output_ids[0]": answers[0]}, "output_ids[0]")

    def _choice(self, choice: Object, event: Event) -> None:
        if index := fields.whole(choice, "index", MOST_TOKENS):
            raise Malformed(f"choices[].index is {index}: one answer a request is measured, and here is another")
        self.prompt_token_ids = fields.ids(choice, "prompt_token_ids") or self.prompt_token_ids
        self.finish_reason = whole_text(fields.text(choice, "finish_reason") or "") or self.finish_reason
        chunk = _chunk(choice, event)
        if chunk is None:
            return
        last = self.chunks[-1] if self.chunks else None
        shares = last is not None and last.at_ns == chunk.at_ns
        if last is not None and shares:
            self.chunks[-1] = replace(last, coalesced=True)
        self.chunks.append(replace(chunk, coalesced=shares))


def _says_nothing(event: Event) -> bool:
    """A keep-alive: no data, or an event of a name of its own (`ping`) whose data is no object."""
    data = event.data.strip()
    return not data or (event.kind not in ("message", "error") and not data.startswith("{"))


def read(events: tuple[Event, ...]) -> Reply:
    """The reply that these events make. Never raises: what is wrong is in `failure` and `message`."""
    reader = _Reader()
    failure: Reason | None = None
    message = ""
    try:
        reader.read(events)
    except Malformed as error:
        failure, message = Reason.MALFORMED_STREAM, str(error)
    if reader.error:
        failure, message = Reason.ERROR_EVENT, reader.error
    elif failure is None:
        failure, message = _ending(reader)
    return Reply(
        first_event_ns=reader.first_event_ns,
        chunks=tuple(reader.chunks),
        text=whole_text("".join(chunk.text for chunk in reader.chunks)),
        reasoning=whole_text("".join(chunk.reasoning for chunk in reader.chunks)),
        tool_calls_json=joined(delta for chunk in reader.chunks for delta in chunk.tool_calls),
        prompt_token_ids=reader.prompt_token_ids,
        token_ids=_all_ids(reader.chunks) or reader.whole_ids,
        usage=reader.usage if reader.usage_chunks == len(reader.chunks) else None,  # else it counts a part
        engine=reader.engine,
        speculation=reader.speculation,
        finish_reason=reader.finish_reason,
        failure=failure,
        message=message,
    )


def _ending(reader: _Reader) -> tuple[Reason | None, str]:
    if reader.finish_reason in _FAILED_FINISHES:
        return Reason.ERROR_EVENT, f"the server ended the answer with finish_reason {reader.finish_reason!r}"
    if reader.finish_reason is None and not reader.done:
        return Reason.MALFORMED_STREAM, "the stream ended with neither a finish_reason nor [DONE]"
    if not reader.chunks and reader.finish_reason is None:
        return Reason.NO_CONTENT, "the stream held neither content in any channel nor a finish_reason"
    return None, ""


def _chunk(choice: Object, event: Event) -> Chunk | None:
    """The content of a choice; None for a delta without any."""
    delta = fields.mapping(choice, "delta") or {}
    text = fields.text(delta, "content") or fields.text(choice, "text") or ""
    reasoning = next((said for name in _REASONING_FIELDS if (said := fields.text(delta, name))), "")
    tool_calls = tuple(call_delta(call) for call in fields.mappings(delta, "tool_calls") or ())
    token_ids = fields.ids(choice, "token_ids")
    if not (text or reasoning or tool_calls or token_ids):
        return None
    return Chunk(
        at_ns=event.at_ns,
        coalesced=False,
        text=text,
        reasoning=reasoning,
        tool_calls=tool_calls,
        token_ids=token_ids,
        wake_ns=event.wake_ns,
    )


def _all_ids(chunks: Iterable[Chunk]) -> tuple[int, ...] | None:
    """All ids in order; None where no chunk had any. Chunks without theirs show when usage counts more tokens."""
    ids = [chunk.token_ids for chunk in chunks]
    known = [sequence for sequence in ids if sequence is not None]
    return tuple(i for sequence in known for i in sequence) if known else None


def _usage(value: Object) -> Usage | None:
    usage = fields.mapping(value, "usage")
    if usage is None:
        return None
    details = fields.mapping(usage, "prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=fields.whole(usage, "prompt_tokens", MOST_TOKENS),
        completion_tokens=fields.whole(usage, "completion_tokens", MOST_TOKENS),
        cached_tokens=fields.whole(details, "cached_tokens", MOST_TOKENS),
    )


def _engine(value: Object) -> EngineMetrics | None:
    """Our `metrics`; a server's own, without any of these names, is not ours to interpret."""
    metrics = value.get("metrics")
    if not isinstance(metrics, dict) or not {"rounds", "decode_ns"} & metrics.keys():
        return None
    rounds = fields.mappings(metrics, "rounds")
    return EngineMetrics(
        **{name: fields.whole(metrics, name, MOST_NS) for name in ("queue_ns", "prefill_ns", "decode_ns")},
        rounds=None if rounds is None else tuple(_engine_round(entry) for entry in rounds),
        prompt_state=fields.word(metrics, "prompt_state", (COMPUTED, RESTORED)),
        profile=_profile(metrics),
    )


def _profile(metrics: Object) -> Profile | None:
    """Ours alone, so that it is whole or malformed."""
    told = fields.mapping(metrics, "profile")
    if told is None:
        return None
    return Profile(
        rounds=fields.required(fields.whole(told, "rounds", MOST_TOKENS), "profile.rounds"),
        clock=fields.required(fields.word(told, "clock", _CLOCKS), "profile.clock"),
        round_ns=fields.required(fields.whole(told, "round_ns", MOST_NS), "profile.round_ns"),
        times=tuple(_operator_time(entry) for entry in fields.mappings(told, "times") or ()),
    )


def _operator_time(entry: Object) -> OperatorTime:
    piece, operator, schedule = (fields.text(entry, name) or "" for name in ("piece", "operator", "schedule"))
    calls = fields.required(fields.whole(entry, "calls", MOST_TOKENS), "profile.times.calls")
    total_ns = fields.required(fields.whole(entry, "total_ns", MOST_NS), "profile.times.total_ns")
    return OperatorTime(piece, operator, schedule, calls, fields.whole(entry, "launches", MOST_TOKENS), total_ns)


def _engine_round(entry: Object) -> EngineRound:
    names = (name for name in EngineRound.__dataclass_fields__ if name != "kind")
    numbers = {name: fields.whole(entry, name, MOST_NS if name.endswith("_ns") else MOST_PER_ROUND) for name in names}
    return EngineRound(kind=fields.word(entry, "kind", _KINDS), **numbers)


def _tells_error(value: Object) -> bool:
    """Null is none, beside choices also an empty one."""
    return bool(value.get("error")) or (value.get("error") is not None and not value.get("choices"))


def _error_text(value: Object) -> str:
    """Never empty: an error that has no words is one all the same."""
    error = value.get("error") or value
    return whole_text(str((error.get("message") if isinstance(error, dict) else error) or json.dumps(error)))

"""JSON of answers: stream chunks and whole responses of both completion dialects.

Knows the spelling of OpenAI's objects and vLLM's additions; knows neither sockets nor the engine.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from runtime.http import logprobs
from runtime.http.requests.order import ModelCard, Order
from runtime.text.generation import Step
from runtime.text.tools import joined
from runtime.text.transcript import Piece

DONE = b"data: [DONE]\n\n"


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


@dataclass
class Progress:
    """What has happened to one request so far, for its usage, its metrics and the server's."""

    num_prompt_tokens: int
    queue_ns: int = 0
    steps: list[Step] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, piece: Piece) -> None:
        self.steps.append(piece.step)
        self.finish_reason = piece.finish_reason

    @property
    def num_tokens(self) -> int:
        return sum(len(step.token_ids) for step in self.steps)

    @property
    def rounds(self) -> list[Step]:
        return self.steps[1:]

    @property
    def prefill_ns(self) -> int:
        return self.steps[0].total_ns if self.steps else 0

    @property
    def decode_ns(self) -> int:
        """From the end of the prefill to the end of the last round, whatever the engine did in between."""
        return self.steps[-1].ended_ns - self.steps[0].ended_ns if self.steps else 0

    def usage(self) -> dict[str, Any]:
        num_tokens = self.num_tokens
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": self.num_prompt_tokens + num_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    @property
    def cached_tokens(self) -> int:
        return self.steps[0].cached_tokens if self.steps else 0

    def metrics(self) -> dict[str, Any]:
        return {
            "prompt_state": "restored" if self.cached_tokens else "computed",
            "queue_ns": self.queue_ns,
            "prefill_ns": self.prefill_ns,
            "decode_ns": self.decode_ns,
            "num_q1_steps": sum(step.kind == "q1" for step in self.rounds),
            "rounds": [step.details() for step in self.rounds],
            **({"profile": self.steps[-1].profile} if self.steps and self.steps[-1].profile else {}),
        }


class Writer:
    """Shapes one request's answer. Subclasses spell the two dialects; `head` fields are alike in every chunk."""

    id_prefix = ""
    chunk_object = ""
    whole_object = ""

    def __init__(self, order: Order, card: ModelCard) -> None:
        self._order = order
        name = f"{self.id_prefix}{secrets.token_hex(12)}"
        self._head = {"id": name, "created": int(time.time()), "model": card.name}
        self._speller = logprobs.TokenSpeller(card.spelling, order.tokens_as_ids)
        self._pieces: list[Piece] = []

    def opening(self, progress: Progress) -> dict[str, Any] | None:
        """A chunk before the first token, or None."""
        return None

    def chunk(self, piece: Piece, progress: Progress) -> dict[str, Any]:
        """What one step adds; `progress` holds that step already."""
        said = self._logprobs([piece.step])
        choice = {"index": 0, **self._channels(piece), "logprobs": said, "finish_reason": self._reason(piece)}
        if self._order.return_token_ids:
            choice["token_ids"] = list(piece.step.token_ids)
            choice |= self._first_ids(piece)
        return {**self._head, "object": self.chunk_object, "choices": [choice], **self._usage_so_far(progress)}

    def closing(self, progress: Progress) -> dict[str, Any] | None:
        """The chunk behind the last choice: usage, and the rounds on request."""
        if not (self._order.include_usage or self._order.return_round_details):
            return None
        return {**self._head, "object": self.chunk_object, "choices": [], **self._totals(progress)}

    def collect(self, piece: Piece) -> None:
        self._pieces.append(piece)

    def whole(self, progress: Progress) -> dict[str, Any]:
        said = self._logprobs(progress.steps)
        choice = {"index": 0, **self._whole_channels(), "logprobs": said, "finish_reason": self._whole_reason()}
        if self._order.return_token_ids:
            choice["token_ids"] = [token_id for step in progress.steps for token_id in step.token_ids]
        answer = {**self._head, "object": self.whole_object, "choices": [choice], **self._totals(progress)}
        return self._with_prompt_ids(answer) if self._order.return_token_ids else answer

    def _usage_so_far(self, progress: Progress) -> dict[str, Any]:
        return {"usage": progress.usage()} if self._order.usage_in_chunks else {}

    def _totals(self, progress: Progress) -> dict[str, Any]:
        details = {"metrics": progress.metrics()} if self._order.return_round_details else {}
        return {"usage": progress.usage(), **details}

    def _logprobs(self, steps: list[Step]) -> dict[str, Any] | None:
        return None if self._order.generation.logprobs is None else self._spelled_logprobs(steps)

    def _spelled_logprobs(self, steps: list[Step]) -> dict[str, Any]:
        raise NotImplementedError

    def _prompt_ids(self) -> list[int]:
        return list(self._order.generation.prompt_ids)

    def _first_ids(self, piece: Piece) -> dict[str, Any]:
        return {}

    def _reason(self, piece: Piece) -> str | None:
        return piece.finish_reason

    def _whole_reason(self) -> str | None:
        return self._pieces[-1].finish_reason

    def _channels(self, piece: Piece) -> dict[str, Any]:
        raise NotImplementedError

    def _whole_channels(self) -> dict[str, Any]:
        raise NotImplementedError

    def _with_prompt_ids(self, answer: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


class CompletionWriter(Writer):
    id_prefix = "cmpl-"
    chunk_object = whole_object = "text_completion"

    def __init__(self, order: Order, card: ModelCard) -> None:
        super().__init__(order, card)
        self._columns = logprobs.Columns(self._speller)

    def _spelled_logprobs(self, steps: list[Step]) -> dict[str, Any]:
        return logprobs.joined([self._columns.of(step) for step in steps])

    def _channels(self, piece: Piece) -> dict[str, Any]:
        return {"text": piece.content}

    def _first_ids(self, piece: Piece) -> dict[str, Any]:
        return {"prompt_token_ids": self._prompt_ids()} if piece.step.kind == "prefill" else {}

    def _whole_channels(self) -> dict[str, Any]:
        return {"text": "".join(piece.content for piece in self._pieces)}

    def _with_prompt_ids(self, answer: dict[str, Any]) -> dict[str, Any]:
        answer["choices"][0]["prompt_token_ids"] = self._prompt_ids()
        return answer


class ChatWriter(Writer):
    id_prefix = "chatcmpl-"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def __init__(self, order: Order, card: ModelCard) -> None:
        super().__init__(order, card)
        self._called = False

    def _spelled_logprobs(self, steps: list[Step]) -> dict[str, Any]:
        entries = [entry for step in steps for entry in logprobs.chat_entries(step, self._speller)]
        return {"content": entries, "refusal": None}

    def opening(self, progress: Progress) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        usage = self._usage_so_far(progress)
        answer = {**self._head, "object": self.chunk_object, "choices": [choice], **usage}
        return self._with_prompt_ids(answer) if self._order.return_token_ids else answer

    def _channels(self, piece: Piece) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        if piece.reasoning:
            delta["reasoning"] = piece.reasoning
        if piece.content:
            delta["content"] = piece.content
        if piece.calls:
            self._called = True
            delta["tool_calls"] = list(piece.calls)
        return {"delta": delta}

    def _reason(self, piece: Piece) -> str | None:
        return "tool_calls" if self._called and piece.finish_reason == "stop" else piece.finish_reason

    def _whole_channels(self) -> dict[str, Any]:
        calls = joined(delta for piece in self._pieces for delta in piece.calls)
        self._called = bool(calls)
        content = "".join(piece.content for piece in self._pieces)
        reasoning = "".join(piece.reasoning for piece in self._pieces)
        message = {"role": "assistant", "content": content or (None if calls else ""), "reasoning": reasoning or None}
        return {"message": {**message, "tool_calls": calls} if calls else message}

    def _whole_reason(self) -> str | None:
        return self._reason(self._pieces[-1])

    def _with_prompt_ids(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "prompt_token_ids": self._prompt_ids()}

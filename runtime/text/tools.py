"""Tool calls in an answer: the model writes `{"name": …, "arguments": {…}}` between its tool markers.

Splits that text into OpenAI's deltas as it arrives: the name once it is complete, the arguments as raw JSON text.
Knows no schemas and no HTTP.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*', re.DOTALL)


@dataclass
class _Call:
    call_id: str
    text: str = ""
    name: str | None = None
    sent: int = 0
    body_start: int = 0

    def arguments(self) -> str:
        """The complete part of the arguments' JSON text: the object's own closing brace is not part of it."""
        body = self.text[self.body_start :].lstrip()
        try:
            _, end = json.JSONDecoder().raw_decode(body)
        except (ValueError, RecursionError):
            return body
        return body[:end]


class CallParser:
    """All calls of one answer. Text that never becomes a call (no readable name) yields no delta and no call."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}

    @property
    def num_calls(self) -> int:
        return sum(call.name is not None for call in self._calls.values())

    def push(self, tool_text: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
        deltas = []
        for index, text in tool_text:
            call = self._calls.setdefault(index, _Call(f"call_{secrets.token_hex(12)}"))
            call.text += text
            deltas += self._deltas(index, call)
        return deltas

    def whole(self) -> list[dict[str, Any]]:
        calls = [call for call in self._calls.values() if call.name is not None]
        return [_spelled(call.call_id, call.name, call.arguments()) for call in calls]

    def _deltas(self, index: int, call: _Call) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = []
        if call.name is None:
            head = _HEAD.match(call.text)
            name = _name(head[1]) if head else None
            if head is None or name is None:
                return []
            call.name, call.body_start = name, head.end()
            deltas.append({"index": index, **_spelled(call.call_id, call.name, "")})
        arguments = call.arguments()
        if len(arguments) > call.sent:
            deltas.append({"index": index, "function": {"arguments": arguments[call.sent :]}})
            call.sent = len(arguments)
        return deltas


def _name(literal: str) -> str | None:
    """The string of a JSON literal, None where it is none or holds half a surrogate pair: models write anything."""
    try:
        name: str = json.loads(literal)
        name.encode()
    except ValueError:
        return None
    return name


def _spelled(call_id: str, name: str | None, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

"""Tool calls in an answer: the model writes `{"name": …, "arguments": {…}}` between its tool markers.

Splits that text into OpenAI's deltas as it arrives: the name once it is complete, the arguments as raw JSON text. JSON
in another order, with `parameters`, an id or arguments in a string is read when the call is complete. What is no call
is handed back, so that it can be shown. Knows no schemas and no HTTP.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"arguments"\s*:\s*(?=\{)', re.DOTALL)

Delta = dict[str, Any]


class CallReader:
    """The calls of one answer, one after another: `push` its text, then `end` it. Calls are numbered from 0."""

    def __init__(self) -> None:
        self._num_calls = 0
        self._begin()

    def push(self, text: str) -> list[Delta]:
        self._text += text
        if self._body_start is None:
            head = _HEAD.match(self._text)
            name = _string(head[1]) if head else None
            if head is None or name is None:
                return []
            self._body_start = head.end()
            return [self._opened(name, ""), *self._more()]
        return self._more()

    def end(self, closed: bool) -> tuple[list[Delta], str]:
        """Deltas that only the whole text shows, and the text itself if it is no call; `closed` by its marker."""
        text, streamed = self._text, self._body_start is not None
        self._begin()
        if streamed:
            self._num_calls += 1
            return [], ""
        found = _read(text)
        if found is None:
            return [], OPEN + text + (CLOSE if closed else "")
        delta = self._opened(*found)
        self._num_calls += 1
        return [delta], ""

    def _begin(self) -> None:
        self._text, self._sent = "", 0
        self._body_start: int | None = None

    def _opened(self, name: str, arguments: str) -> Delta:
        function = {"name": name, "arguments": arguments}
        return {
            "index": self._num_calls,
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": function,
        }

    def _more(self) -> list[Delta]:
        arguments = self._arguments()
        more, self._sent = arguments[self._sent :], len(arguments)
        return [{"index": self._num_calls, "function": {"arguments": more}}] if more else []

    def _arguments(self) -> str:
        """The complete part of the arguments' JSON text: the object's own closing brace is not part of it."""
        body = self._text[self._body_start :]
        try:
            _, end = json.JSONDecoder().raw_decode(body)
        except (ValueError, RecursionError):
            return body
        return body[:end]


def joined(deltas: Iterable[Delta]) -> list[dict[str, Any]]:
    """Whole calls from all deltas of an answer."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        if "id" in delta:
            calls[delta["index"]] = {"id": delta["id"], "type": "function", "function": dict(delta["function"])}
        else:
            calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return list(calls.values())


def _read(text: str) -> tuple[str, str] | None:
    """Name and arguments (JSON text of an object) of a complete call, None where it is none."""
    value = _json(text)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name or not _encodes(name):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        return (name, arguments) if isinstance(_json(arguments), dict) and _encodes(arguments) else None
    if not isinstance(arguments, dict):
        return None
    written = json.dumps(arguments, ensure_ascii=False)
    return name, written if _encodes(written) else json.dumps(arguments)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _string(literal: str) -> str | None:
    """The string of a JSON literal, None where it is none or holds half a surrogate pair: models write anything."""
    value = _json(literal)
    return value if isinstance(value, str) and _encodes(value) else None


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

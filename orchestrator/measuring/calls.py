"""Tool calls, put together from the pieces in which a stream brings them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.servers import fields
from orchestrator.servers.fields import Object


@dataclass(frozen=True)
class CallDelta:
    """What one chunk adds to a tool call."""

    index: int | None
    id: str
    name: str
    arguments: str


def call_delta(delta: Object) -> CallDelta:
    function = fields.mapping(delta, "function") or {}
    return CallDelta(
        index=fields.whole(delta, "index", fields.MOST_PER_ROUND),
        id=fields.text(delta, "id") or "",
        name=fields.text(function, "name") or "",
        arguments=fields.text(function, "arguments") or "",
    )


def joined(deltas: Iterable[CallDelta]) -> str:
    """All calls as JSON, put together from their deltas in order of arrival. Call ids are random and are left out.

    An index that comes again with another id, or without one and with another name, is another call.
    """
    calls: list[dict[str, Any]] = []
    open_calls: dict[int, tuple[dict[str, Any], str]] = {}  # by index: the call and its id
    for delta in deltas:
        index = len(open_calls) if delta.index is None else delta.index
        function, known = open_calls.get(index, ({}, ""))
        if index not in open_calls or _is_another(delta, known, function):
            function, known = {}, ""
            calls.append({"type": "function", "function": function})
        open_calls[index] = function, delta.id or known
        if delta.name and delta.name != function.get("name"):
            function["name"] = function.get("name", "") + delta.name
        function["arguments"] = function.get("arguments", "") + delta.arguments
    return fields.whole_text(json.dumps(calls, ensure_ascii=False, separators=(",", ":"))) if calls else ""


def _is_another(delta: CallDelta, known: str, function: Mapping[str, Any]) -> bool:
    if delta.id and known:
        return delta.id != known
    return bool(delta.name and function.get("name") and delta.name != function["name"])

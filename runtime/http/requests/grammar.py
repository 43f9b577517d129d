"""From `tools` and `tool_choice` to a grammar that the engine follows, and the check of every grammar.

Grammars are checked with the model's vocabulary, so that what cannot be constrained is refused before it is queued.
Knows no HTTP streams, no torch and no sampling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher

from runtime.http.errors import bad
from runtime.http.requests import fields
from runtime.http.requests.form import HEADER, json_rule
from runtime.text.spelling import Spelling

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class ToolOrder:
    """`tools` as the template shows them; `forced` names those of which one must be called (empty: none must)."""

    tools: tuple[Mapping[str, Any], ...] = ()
    forced: tuple[str, ...] = ()
    parallel: bool = True


class GrammarChecker:
    """Compiles a grammar once and asks for its first tokens, to see whether it can be followed."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling

    def check(self, grammar: str, param: str) -> str:
        matcher = LLMatcher(self._spelling.tokenizer, grammar, log_level=0)
        matcher.compute_bitmask()  # what compiles may still have no first token: a schema that only refers to itself
        if matcher.is_error():
            reason = matcher.get_error().partition("\n<state>")[0]
            raise bad(f"{param} cannot be followed: {' '.join(reason.split())[:500]}", param)
        return grammar


def read_tools(body: fields.Body) -> ToolOrder:
    value = body.get("tools")
    if value is not None and not isinstance(value, list):
        raise bad("tools must be a list", "tools")
    tools = tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(value or ()))
    names = [tool["function"]["name"] for tool in tools]
    if len(names) != len(set(names)):
        raise bad("tools must have different names", "tools")
    choice = body.get("tool_choice")
    if choice == "none":
        return ToolOrder()
    parallel = fields.boolean(body, "parallel_tool_calls", True)
    return ToolOrder(tools, _forced(choice, names), parallel and not isinstance(choice, dict))


def tool_grammar(order: ToolOrder, space: Mapping[str, Any]) -> str | None:
    """One call, or several, of the forced tools; None where the model may choose. `space`: `form.spacing`."""
    if not order.forced:
        return None
    chosen = [tool["function"] for tool in order.tools if tool["function"]["name"] in order.forced]
    heads = [json.dumps(f'{{"name": {json.dumps(function["name"])}, "arguments": ') for function in chosen]
    bodies = "".join(
        f'body_{index}: {head} args_{index} "}}"\nargs_{index}: {json_rule(_parameters(function), space)}\n'
        for index, (head, function) in enumerate(zip(heads, chosen, strict=True))
    )
    either = " | ".join(f"body_{index}" for index in range(len(chosen)))
    many = "+" if order.parallel else ""
    return f'{HEADER}start: call{many}\ncall: <tool_call> "\\n" body "\\n" </tool_call>\nbody: {either}\n{bodies}'


def _tool(tool: Any, where: str) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict):
        raise bad(f"{where} must be an object of type 'function' with a function", "tools")
    name = function.get("name")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise bad(f"{where}.function.name must be 1 to 64 letters, digits, '_', '-' or '.'", "tools")
    if not isinstance(function.get("parameters", {}), dict):
        raise bad(f"{where}.function.parameters must be a JSON schema", "tools")
    return tool


def _parameters(function: Mapping[str, Any]) -> Mapping[str, Any]:
    return function.get("parameters") or {"type": "object"}


def _forced(choice: Any, names: Sequence[str]) -> tuple[str, ...]:
    if choice in (None, "auto"):
        return ()
    if choice == "required" and names:
        return tuple(names)
    name = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = name.get("name") if isinstance(name, dict) else None
    if name not in names:
        raise bad("tool_choice must be none, auto, required or a function that tools lists", "tool_choice")
    return (name,)

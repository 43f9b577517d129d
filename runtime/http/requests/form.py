"""The form that an answer must have, by any of its names: `response_format`, `structured_outputs`, `guided_*`.

Reads one kind out of a body and writes it as an llguidance grammar. Knows no vocabulary and no tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark

from runtime.http.errors import bad
from runtime.http.requests import fields

HEADER = "%llguidance {}\n"
# One space, or one line break and an indentation: a model cannot spend its budget on white space.
_BOUNDED = "( |\\r?\\n[ \\t]{0,32})?"
_KINDS = ("json", "regex", "choice", "grammar", "json_object")
_SETTINGS = ("whitespace_pattern", "disable_any_whitespace")
_MAX_CHOICES = 1024


def form_grammar(body: fields.Body) -> tuple[str, str] | None:
    """The grammar and the name of the field that asks for it; None for free text."""
    wanted = _wanted(body)
    kinds = [(field, kind) for field, kind in wanted if kind in _KINDS]
    if not kinds:
        return None
    if len(kinds) > 1:
        names = " and ".join(sorted({f"{field} ({kind})" for field, kind in kinds}))
        raise bad(f"an answer has one form, and {names} ask for several; send one of them", kinds[1][0])
    ((field, kind),) = kinds
    return _written(kind, wanted[field, kind], spacing(body), field), field


def spacing(body: fields.Body) -> Mapping[str, Any]:
    """llguidance's rule of white space in JSON: bounded, or what the request says."""
    settings = {kind: value for (_, kind), value in _wanted(body).items() if kind in _SETTINGS}
    if settings.get("disable_any_whitespace"):
        return {"whitespace_flexible": False}
    return {"whitespace_pattern": settings.get("whitespace_pattern", _BOUNDED)}


def json_rule(schema: Any, space: Mapping[str, Any]) -> str:
    """The right side of a grammar rule for JSON under `schema`."""
    schema = {} if schema is True else {"not": {}} if schema is False else schema
    own = schema.get("x-guidance", {}) if isinstance(schema, dict) else {}
    return f"%json {json.dumps({**schema, 'x-guidance': {**space, **own}})}"


def _wanted(body: fields.Body) -> dict[tuple[str, str], Any]:
    """(field, kind or setting) -> its value, from every field that may name one."""
    wanted: dict[tuple[str, str], Any] = {}
    own = fields.mapping(body, "structured_outputs") or {}
    for name, value in own.items():
        if value is None or value is False:
            continue
        if name not in (*_KINDS, *_SETTINGS, "disable_fallback"):
            raise bad(f"structured_outputs.{name} is not supported by this server", "structured_outputs")
        wanted["structured_outputs", name] = value
    for name in (*_KINDS, "whitespace_pattern"):
        if body.get(f"guided_{name}") is not None:
            wanted[f"guided_{name}", name] = body[f"guided_{name}"]
    form = fields.mapping(body, "response_format") or {"type": "text"}
    if form.get("type") == "json_object":
        wanted["response_format", "json_object"] = True
    elif form.get("type") == "json_schema":
        wanted["response_format", "json"] = _named_schema(form.get("json_schema"))
    elif form.get("type") != "text":
        told = f"response_format.type must be text, json_object or json_schema, not {json.dumps(form.get('type'))[:60]}"
        raise bad(told, "response_format")
    _check_settings(wanted)
    return wanted


def _check_settings(wanted: Mapping[tuple[str, str], Any]) -> None:
    for (field, name), value in wanted.items():
        if name == "whitespace_pattern" and not isinstance(value, str):
            raise bad(f"{field}: whitespace_pattern must be a regular expression, a string", field)
        if name == "disable_any_whitespace" and not isinstance(value, bool):
            raise bad(f"{field}: disable_any_whitespace must be true or false", field)


def _named_schema(named: Any) -> Any:
    if not isinstance(named, dict) or not isinstance(named.get("schema"), dict | bool):
        raise bad("response_format.json_schema.schema must be a JSON schema", "response_format")
    return named["schema"]


def _written(kind: str, value: Any, space: Mapping[str, Any], field: str) -> str:
    match kind:
        case "json":
            return f"{HEADER}start: {json_rule(_schema(value, field), space)}\n"
        case "json_object":
            return f"{HEADER}start: {json_rule({'type': 'object'}, space)}\n"
        case "choice":
            return f"{HEADER}start: {' | '.join(map(json.dumps, _choices(value, field)))}\n"
        case "regex":
            return str(LLMatcher.grammar_from_regex(_regex(value, field)))
    return _lark(value, field)


def _schema(value: Any, field: str) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise bad(f"{field} is a string that is not JSON: {error}", field) from error
    if not isinstance(value, dict | bool):
        raise bad(f"{field} must be a JSON schema", field)
    return value


def _choices(value: Any, field: str) -> list[str]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_CHOICES:
        raise bad(f"{field} must list 1 to {_MAX_CHOICES} choices", field)
    for choice in value:
        if not isinstance(choice, str) or not choice:
            raise bad(f"{field} must hold non-empty strings, not {json.dumps(choice)[:60]}", field)
        fields.require_unicode(choice, field)
    return value


def _regex(value: Any, field: str) -> str:
    """The whole answer matches, so anchors say nothing new; llguidance has none."""
    if not isinstance(value, str) or not value:
        raise bad(f"{field} must be a non-empty regular expression", field)
    fields.require_unicode(value, field)
    value = value.removeprefix("^")
    escaped = (len(value) - 1 - len(value[:-1].rstrip("\\"))) % 2
    return value[:-1] if value.endswith("$") and not escaped else value


def _lark(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise bad(f"{field} must be a grammar in Lark's or GBNF's notation", field)
    fields.require_unicode(value, field)
    try:
        return str(LLMatcher.grammar_from_lark(any_to_lark(value)))
    except (GbnfToLarkError, ValueError, RecursionError) as error:
        raise bad(f"{field} is no grammar: {' '.join(str(error).split())[:300]}", field) from error

"""What of a JSON schema a grammar engine follows: the rest is sent to no server and checked on the finished answer.

A server refuses a request with a keyword that its engine does not know. So it gets a schema that allows more, and the
scorer has the whole one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_DROPPED = {
    *("uniqueItems", "not", "if", "then", "else", "contains", "minContains", "maxContains", "propertyNames"),
    *("dependentSchemas", "dependentRequired", "dependencies", "unevaluatedProperties", "unevaluatedItems"),
}
_FORMATS = {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # name -> schema
_DATA = ("enum", "const", "default", "examples")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")


@dataclass
class Loosened:
    """`schema` without what engines do not follow; it allows everything that the whole one allows."""

    schema: Any
    features: set[str] = field(default_factory=set)  # what is checked afterwards; empty: nothing


def loosened(whole: Any) -> Loosened:
    found = Loosened(whole)
    found.schema = _schema(whole, found.features)
    if found.features:  # of looser alternatives two may hold where one did
        found.schema = _any_of(found.schema)
    return found


def _schema(node: Any, features: set[str]) -> Any:
    if isinstance(node, list):
        return [_schema(item, features) for item in node]
    if not isinstance(node, Mapping):
        return node
    kept: dict[str, Any] = {}
    for key, value in node.items():
        reason = _reason(key, value)
        if reason:
            features.add(reason)
        elif key in _NAMED and isinstance(value, Mapping):
            kept[key] = {name: _schema(sub, features) for name, sub in value.items()}
        else:
            kept[key] = value if key in _DATA else _schema(value, features)
    if "patternProperties" in node and "patternProperties" not in kept:
        kept.pop("additionalProperties", None)  # it speaks of the names that no pattern has
    return kept


def _reason(key: str, value: Any) -> str:
    """Why a keyword is not sent; empty for one that is."""
    if key in _DROPPED:
        return key
    if key == "format" and isinstance(value, str) and value not in _FORMATS:
        return f"format {value}"
    if key == "pattern" and isinstance(value, str) and _LOOK_AROUND.search(value):
        return "look-around in pattern"
    if key == "patternProperties" and isinstance(value, Mapping) and any(map(_LOOK_AROUND.search, value)):
        return "look-around in patternProperties"
    return ""


def _any_of(node: Any) -> Any:
    if isinstance(node, list):
        return [_any_of(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    changed: dict[str, Any] = {}
    for key, value in node.items():
        if key in _NAMED and isinstance(value, Mapping):
            changed[key] = {name: _any_of(sub) for name, sub in value.items()}
        elif key == "oneOf" and "anyOf" not in node:
            changed["anyOf"] = _any_of(value)
        elif key != "oneOf":
            changed[key] = value if key in _DATA else _any_of(value)
    return changed

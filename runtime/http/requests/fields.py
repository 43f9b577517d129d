"""Reading JSON bodies field by field: types and ranges, each failure one sentence that names field and value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from runtime.http.errors import ApiError, bad

Body = Mapping[str, Any]


def parse_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise bad(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad("the body must be a JSON object")
    return body


def boolean(body: Body, name: str, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad(f"{name} must be true or false, not {_shown(value)}", name)
    return value


def integer(body: Body, name: str, low: int, high: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad(f"{name} must be an integer from {low} to {high}, not {_shown(value)}", name)
    return value


def number(body: Body, name: str, low: float, high: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad(f"{name} must be a number, not {_shown(value)}", name)
    if not low <= value <= high:  # NaN neither; an integer may be too large for a float
        raise bad(f"{name} must lie between {low:g} and {high:g}, not {_shown(value)}", name)
    return float(value)


def text(body: Body, name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad(f"{name} must be a string, not {_shown(value)}", name)
    if value is not None:
        require_unicode(value, name)
    return value


def mapping(body: Body, name: str) -> dict[str, Any] | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise bad(f"{name} must be an object, not {_shown(value)}", name)
    return value


def texts(body: Body, name: str, at_most: int) -> tuple[str, ...]:
    """A string, or a list of non-empty strings."""
    value = body.get(name)
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(item, str) and item for item in values):
        raise bad(f"{name} must be a string or a list of non-empty strings, not {_shown(value)}", name)
    if len(values) > at_most:
        raise bad(f"{name} may have at most {at_most} entries, not {len(values)}", name)
    for item in values:
        require_unicode(item, name)
    return tuple(values)


def token_ids(value: Any, name: str, num_ids: int) -> tuple[int, ...]:
    """A list of ids below `num_ids`."""
    if not isinstance(value, list):
        raise bad(f"{name} must be a list of token ids, not {_shown(value)}", name)
    for token_id in value:
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < num_ids:
            raise bad(f"{name} must hold token ids from 0 to {num_ids - 1}, not {_shown(token_id)}", name)
    return tuple(value)


def refuse_unless(body: Body, name: str, neutral: tuple[Any, ...], instead: str | None = None) -> None:
    """Refuse a field that this server cannot honour, unless its value asks for nothing; `instead` is what it can."""
    value = body.get(name)
    asks_nothing = any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in neutral)
    if value is not None and not asks_nothing:
        remedy = f"; send {instead}" if instead else ""
        told = f"{name}={_shown(value)} is not supported by this server{remedy}"
        raise ApiError(400, told, name, "unsupported_parameter")


def require_unicode(value: str, name: str) -> None:
    """JSON can spell half a surrogate pair; no tokenizer can read one."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise bad(f"{name} holds an unpaired surrogate at position {error.start}; send valid Unicode", name) from error


def _shown(value: Any) -> str:
    shown = json.dumps(value, default=str)
    return shown if len(shown) <= 60 else shown[:57] + "..."

"""The bearer key of a server, read where the server is asked: it is in no plan, no store and no message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from campaigns.errors import UsageError
from campaigns.plan import ServerPlan


def headers_of(plan: ServerPlan, environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What every request to the server carries. UsageError where the key cannot be had."""
    key = _key(plan, environment)
    return (*plan.headers, *((("Authorization", f"Bearer {key}"),) if key else ()))


def _key(plan: ServerPlan, environment: Mapping[str, str]) -> str:
    if plan.api_key_env:
        key, where = environment.get(plan.api_key_env, ""), f"server.api_key_env={plan.api_key_env}: the variable"
    elif plan.api_key_file:
        key, where = _read(plan.api_key_file), f"server.api_key_file={plan.api_key_file}: the file"
    else:
        return ""
    if not key.strip():
        raise UsageError(f"{where} is empty or not there; put the key into it")
    if not key.strip().isascii() or any(c.isspace() for c in key.strip()):
        raise UsageError(f"{where} holds more than one word: a bearer key has no blanks")
    return key.strip()


def _read(name: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"server.api_key_file={name}: cannot be read ({getattr(error, 'strerror', error)})") from None

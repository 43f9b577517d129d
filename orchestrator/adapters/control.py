"""Small HTTP calls beside the measured ones: identity, arm, tokens. Not timed, one connection each."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from campaigns.errors import ServerFailed, UsageError

_TIMEOUT_S = 60.0
_ABSENT = (404, 405, 501)


class ServerRefused(ServerFailed):
    """The server answered, with an error status that is not the absence of the route."""


def ask(base_url: str, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """(status, body). ServerFailed when the server does not answer at all."""
    parts = urlsplit(base_url)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(f"base URL {base_url!r}: write http://HOST:PORT")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    payload = None if body is None else json.dumps(body, ensure_ascii=False).encode()
    try:
        connection.request(method, parts.path.rstrip("/") + path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ServerFailed(f"the server at {base_url} does not answer {method} {path}: {error!r}") from error
    finally:
        connection.close()


def ask_json(base_url: str, method: str, path: str, body: Any = None) -> Any | None:
    """The answer's JSON; None where the server has no such route. ServerRefused on any other refusal."""
    status, text = ask(base_url, method, path, body)
    if status in _ABSENT:
        return None
    if status != 200:
        raise ServerRefused(f"{method} {path}: HTTP {status}: {_message(text)}")
    try:
        return json.loads(text)
    except ValueError:
        return None  # a catch-all page, not the route


def ask_metrics(base_url: str) -> dict[str, float]:
    """Prometheus samples of GET /metrics by name, summed over their labels; empty where there are none."""
    status, text = ask(base_url, "GET", "/metrics")
    totals: dict[str, float] = {}
    try:
        families = list(text_string_to_metric_families(text.decode())) if status == 200 else []
    except ValueError:
        return {}
    for sample in (sample for family in families for sample in family.samples):
        totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


def _message(text: bytes) -> str:
    try:
        value = json.loads(text)
        return str(value["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:300]

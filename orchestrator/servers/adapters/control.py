"""Small HTTP calls beside the measured ones: identity, arm, counters, tokens. Not timed.

No proxy of the environment is ever asked: what stands between would be measured. One that was asked for is.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from campaigns.errors import ServerFailed, UsageError
from orchestrator.servers.busy import retry_after_s
from orchestrator.servers.fields import Malformed

T = TypeVar("T")
_TIMEOUT_S = 60.0
_CONNECT_S = 5.0
_BUSY_S = 30.0  # altogether, for a call that a busy server puts off
_ABSENT = (404, 405, 501)
_PORTS = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
_proxies: dict[str, str] = {}  # by base URL: http://HOST:PORT
_hung_up: set[str] = set()  # base URLs
_in_flight: dict[str, set[http.client.HTTPConnection]] = {}  # by base URL: calls that wait for their answer
_headers: dict[str, dict[str, str]] = {}  # by base URL: what every request there carries, keys among them


class ServerRefused(ServerFailed):
    """The server answered, with an error status that is not the absence of the route."""


class Session:
    """Connections that stay open between calls, for the calls that stand between the two requests of a pair."""

    def __init__(self) -> None:
        self._kept: dict[str, http.client.HTTPConnection] = {}
        weakref.finalize(self, _close, self._kept)

    def take(self, base_url: str) -> http.client.HTTPConnection | None:
        return self._kept.pop(base_url, None)

    def keep(self, base_url: str, connection: http.client.HTTPConnection) -> None:
        self._kept[base_url] = connection


def carry(base_url: str, headers: Mapping[str, str], proxy: str = "") -> None:
    """From now on every call to this server has these headers, and goes through this proxy."""
    _headers[base_url], _proxies[base_url] = dict(headers), proxy
    _hung_up.discard(base_url)


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after_s: float | None  # of a server that is busy: how long to leave it alone


def hang_up(base_url: str) -> None:
    """Calls in flight to this server end as if it had, and none is made until `carry`; from any thread."""
    _hung_up.add(base_url)
    for connection in list(_in_flight.get(base_url, ())):
        with suppress(OSError, AttributeError):  # it is not open yet, or no longer
            connection.sock.shutdown(socket.SHUT_RDWR)


def ask(base_url: str, method: str, path: str, body: Any = None, session: Session | None = None) -> tuple[int, bytes]:
    """(status, body). ServerFailed when the server does not answer at all. A busy one that says for how long is asked
    again then, where that is soon enough.
    """
    deadline = time.monotonic() + _BUSY_S
    while True:
        answer = ask_once(base_url, method, path, body, session)
        if answer.retry_after_s is None or time.monotonic() + answer.retry_after_s > deadline:
            return answer.status, answer.body
        time.sleep(answer.retry_after_s)


def ask_once(
    base_url: str,
    method: str,
    path: str,
    body: Any = None,
    session: Session | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> Answer:
    """ServerFailed when the server does not answer at all."""
    kept = session.take(base_url) if session else None
    if kept is not None:
        try:
            return _exchange(kept, base_url, method, path, body, session)
        except (OSError, http.client.HTTPException):
            pass  # closed by the server while it was idle: every call here may be repeated
    try:
        return _exchange(_connection(base_url, timeout_s), base_url, method, path, body, session)
    except (OSError, http.client.HTTPException) as error:
        raise ServerFailed(f"the server at {base_url} does not answer {method} {path}: {error!r}") from error


def ask_json(base_url: str, method: str, path: str, body: Any = None, session: Session | None = None) -> Any | None:
    """The answer's JSON; None where the server has no such route. ServerRefused on any other refusal."""
    status, text = ask(base_url, method, path, body, session)
    if status in _ABSENT:
        return None
    if status != 200:
        raise ServerRefused(f"{method} {path}: HTTP {status}: {_message(text)}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # a catch-all page, not the route


def ask_object(base_url: str, path: str, session: Session | None = None) -> Mapping[str, Any] | None:
    """GET of a route whose answer is an object; None where there is no such route. ServerFailed on another answer."""
    answer = ask_json(base_url, "GET", path, session=session)
    if answer is not None and not isinstance(answer, dict):
        raise ServerFailed(f"GET {path}: the answer is {str(answer)[:80]}, which is not an object")
    return answer


def said(path: str, read: Callable[[], T]) -> T:
    """What `read` makes of an answer; ServerFailed that names the route and the field where it is malformed."""
    try:
        return read()
    except Malformed as error:
        raise ServerFailed(f"GET {path}: {error}") from error


def ask_metrics(base_url: str) -> dict[str, float]:
    """Prometheus samples of GET /metrics by name, summed over their labels; empty where there are none.

    A sum that is no finite number is left out: its counter is absent.
    """
    status, text = ask(base_url, "GET", "/metrics")
    totals: dict[str, float] = {}
    try:
        families = list(text_string_to_metric_families(text.decode())) if status == 200 else []
    except ValueError:
        return {}
    for sample in (sample for family in families for sample in family.samples):
        totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return {name: total for name, total in totals.items() if math.isfinite(total)}


def _exchange(
    connection: http.client.HTTPConnection, base_url: str, method: str, path: str, body: Any, session: Session | None
) -> Answer:
    payload = None if body is None else json.dumps(body, ensure_ascii=False).encode()
    target = urlsplit(base_url).path.rstrip("/") + path
    if base_url in _hung_up:
        raise ConnectionAbortedError("its startup was stopped")
    keep = False
    waiting = _in_flight.setdefault(base_url, set())
    waiting.add(connection)
    try:
        headers = {"Content-Type": "application/json", **_headers.get(base_url, {})}
        connection.request(method, target, payload, headers)
        response = connection.getresponse()
        busy_s = retry_after_s(
            response.status, response.headers.get("Retry-After", ""), response.headers.get("Date", "")
        )
        answer = Answer(response.status, response.read(), busy_s)
        keep = session is not None and not response.will_close
        return answer
    finally:
        waiting.discard(connection)
        if keep and session is not None:
            session.keep(base_url, connection)
        else:
            connection.close()


def check_url(base_url: str) -> tuple[str, str, int]:
    """Scheme, host and port; UsageError for what is no address of a server."""
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in _PORTS:
        raise UsageError(f"server.base_url={base_url}: write http://HOST:PORT or https://HOST:PORT")
    if "@" in parts.netloc:  # what follows is stored and shown, and nothing would send it
        raise UsageError(
            f"server.base_url names a user for {host}: a key comes by server.api_key_env=NAME or "
            "server.api_key_file=FILE"
        )
    return parts.scheme, host, port or _PORTS[parts.scheme]


def check_listening(base_url: str, proxy: str) -> None:
    """ServerFailed at once where nobody listens: a server that others started does not come by waiting."""
    carry(base_url, _headers.get(base_url, {}), proxy)
    if why := unreachable(base_url):
        raise ServerFailed(f"server.base_url={base_url}: nobody listens ({why}); start that server first")


def unreachable(base_url: str) -> str:
    """Why no connection can be opened; empty where one can."""
    _, host, port = check_url(base_url)
    try:
        connection = _through(http.client.HTTPConnection, base_url, host, port, _CONNECT_S)
        connection.connect()
        connection.close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def _connection(base_url: str, timeout_s: float) -> http.client.HTTPConnection:
    scheme, host, port = check_url(base_url)
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    return _through(kind, base_url, host, port, timeout_s)  # with the system's certificates


def _through(
    kind: type[http.client.HTTPConnection], base_url: str, host: str, port: int, timeout_s: float
) -> http.client.HTTPConnection:
    proxy = urlsplit(_proxies.get(base_url, ""))
    if not proxy.hostname:
        return kind(host, port, timeout=timeout_s)
    connection = kind(proxy.hostname, proxy.port, timeout=timeout_s)
    connection.set_tunnel(host, port)
    return connection


def _close(connections: dict[str, http.client.HTTPConnection]) -> None:
    for connection in connections.values():
        connection.close()


def _message(text: bytes) -> str:
    try:
        value = json.loads(text)
        return str(value["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text.decode(errors="replace")[:300]

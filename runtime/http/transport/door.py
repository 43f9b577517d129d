"""Who may ask, and how a request must be framed, before anything reads it.

A page of any site may send requests to a port of this host; DNS rebinding lets it read the answers too, under the
site's own name. So the Host header must name this server, and the Origin of a page must be this server's. Addresses
are never rebound. With an API key neither is asked for: a page does not have the key.

A body that is told by Content-Length and by Transfer-Encoding at once ends in two places: whatever stands before this
server may see another request behind it than we do (RFC 9112, section 6.1).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.http.errors import ApiError


class Door:
    """ASGI around the application. `names` may stand in a Host header beside addresses; None asks for none."""

    def __init__(self, app: ASGIApp, names: Collection[str] | None) -> None:
        self._app = app
        self._names = None if names is None else {name.lower().rstrip(".") for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope["headers"]) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal.response())(scope, receive, send)

    def _refusal(self, headers: list[tuple[bytes, bytes]]) -> ApiError | None:
        found = {name: value.decode("latin-1") for name, value in headers}
        if b"content-length" in found and b"transfer-encoding" in found:
            return ApiError(400, "Content-Length and Transfer-Encoding exclude each other: send one", closes=True)
        host = found.get(b"host", "")
        if self._names is None:
            return None
        if host and not self._is_ours(host):
            return ApiError(421, f"{host!r} is not a name of this server; --allowed-host makes it one")
        origin = found.get(b"origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return ApiError(403, f"pages of {origin!r} may not ask this server")
        return None

    def _is_ours(self, host: str) -> bool:
        assert self._names is not None, "asked only where names count"
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
            return name in self._names or bool(ipaddress.ip_address(name))
        except ValueError:
            return False


def own_names(host: str, allowed: Collection[str]) -> frozenset[str]:
    """`localhost`, what the server listens on, the host's name, and what a person allows."""
    return frozenset({"localhost", host, socket.gethostname(), *allowed})

"""Who may ask: this host's own browser, on the pages of this server, and nobody through another site's name.

A page of any site may send requests to a loopback port; what it must not do is read answers (DNS rebinding gives it our
address under its own name, so the Host header is compared) or change anything (a form of another origin, so the Origin
is compared, and a token that only our pages hold). Knows no campaign.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI around the pages: 421 for a foreign name, 403 for a foreign origin, and the headers of every answer."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(Headers(scope=scope))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await (refusal or self._app)(scope, receive, answer)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        if headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("this server answers to 127.0.0.1 and localhost alone\n", 421)
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return PlainTextResponse("another site may not ask here\n", 403)
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("another site may not ask here\n", 403)
        return None


class Token:
    """Made anew for every life of the server; a form without it changes nothing."""

    def __init__(self) -> None:
        self.value = secrets.token_urlsafe(32)

    def holds(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.value.encode())

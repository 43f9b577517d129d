"""Bodies of requests: read up to a limit, parsed off the event loop, and their memory given back.

A text takes some eighty times its size while it is tokenised. Large bodies are therefore parsed one at a time, and the
C library, which would keep what they took for later, is asked to return it. Knows no routes.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.http.errors import ApiError
from runtime.http.requests import fields

T = TypeVar("T")
_LARGE_BYTES = 1 << 18


class Bodies:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._one_large = asyncio.Lock()

    async def parsed(self, request: Request, parse: Callable[[fields.Body], T]) -> T:
        """Off the event loop: a long text to tokenise and a grammar to compile take seconds, and streams must go on."""
        raw = await self._read(request)
        if len(raw) < _LARGE_BYTES:
            return await asyncio.to_thread(_parsed, raw, parse)
        async with self._one_large:
            return await asyncio.to_thread(_parsed, raw, parse)

    async def _read(self, request: Request) -> bytes:
        raw = bytearray()
        async for part in request.stream():
            raw += part
            if len(raw) > self._max_bytes:
                raise ApiError(413, f"the body is larger than {self._max_bytes} bytes, this server's limit")
        return bytes(raw)


def _parsed(raw: bytes, parse: Callable[[fields.Body], T]) -> T:
    return parse(fields.parse_object(raw))


class GivesBack:
    """ASGI around the application: after a large body, free memory goes back to the system."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size_bytes = 0

        async def counted() -> Message:
            nonlocal size_bytes
            message = await receive()
            size_bytes += len(message.get("body", b""))
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            if size_bytes >= _LARGE_BYTES and self._trim is not None:
                await asyncio.to_thread(self._trim, 0)

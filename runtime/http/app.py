"""The ASGI application: routes, limits, keys. Every answer that is not the model's has OpenAI's error shape.

Knows Starlette and the service; knows no processes and no torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.http import answers
from runtime.http.errors import ApiError, bad
from runtime.http.metrics import ServerMetrics
from runtime.http.openapi import description
from runtime.http.requests import fields
from runtime.http.requests.order import ModelCard, Order, chat_order, completion_order, tokens_to_count
from runtime.http.service import Run, Service
from runtime.http.transport.bodies import Bodies, GivesBack
from runtime.http.transport.door import Door
from runtime.identity import version
from runtime.workers.client import (
    STOPPED,
    EngineBusy,
    EngineDead,
    EngineRefused,
    EngineStopped,
    QueueFull,
    RequestBroke,
)

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SSE_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class Limits:
    max_body_bytes: int
    api_key: str | None = None
    names: frozenset[str] = frozenset()  # that may stand in a Host header; addresses always may


class Routes:
    """The handlers of one service."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._bodies = Bodies(limits.max_body_bytes)

    def table(self) -> list[Route]:
        post, get = ["POST"], ["GET"]
        return [
            Route("/health", self.health, methods=get),
            Route("/metrics", self.metrics, methods=get),
            Route("/openapi.json", self.openapi, methods=get),
            Route("/v1/models", self.models, methods=get),
            Route("/v1/models/{name:path}", self.model, methods=get),
            Route("/v1/completions", self.completions, methods=post),
            Route("/v1/chat/completions", self.chat_completions, methods=post),
            Route("/tokenize", self.tokenize, methods=post),
            Route("/detokenize", self.detokenize, methods=post),
            Route("/campaign/identity", self.identity, methods=get),
            Route("/campaign/arm", self.arm, methods=get),
            Route("/campaign/arm", self.select_arm, methods=["PUT"]),
            Route("/campaign/counters", self.counters, methods=get),
        ]

    async def health(self, request: Request) -> Response:
        self._card()
        return Response(status_code=200)

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics().render(), headers={"Content-Type": _METRICS_TYPE})

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(description(version()))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model(self._card())]})

    async def model(self, request: Request) -> Response:
        card = self._card()
        name = request.path_params["name"]
        if name != card.name:
            raise ApiError(404, f"model {name!r} is not served here; this server serves {card.name!r}", "model")
        return JSONResponse(_model(card))

    async def completions(self, request: Request) -> Response:
        card = self._card()
        order = await self._bodies.parsed(request, lambda body: completion_order(body, card))
        return await self._answer(request, order, answers.CompletionWriter(order, card))

    async def chat_completions(self, request: Request) -> Response:
        card = self._card()
        order = await self._bodies.parsed(request, lambda body: chat_order(body, card))
        return await self._answer(request, order, answers.ChatWriter(order, card))

    async def tokenize(self, request: Request) -> Response:
        card = self._card()
        ids = await self._bodies.parsed(request, lambda body: tokens_to_count(body, card))
        return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": card.max_model_len})

    async def detokenize(self, request: Request) -> Response:
        tokenizer = self._card().tokenizer

        def decoded(body: fields.Body) -> str:
            return tokenizer.decode(fields.token_ids(body.get("tokens"), "tokens", tokenizer.num_ids))

        return JSONResponse({"prompt": await self._bodies.parsed(request, decoded)})

    async def identity(self, request: Request) -> Response:
        self._card()
        return JSONResponse(await self._service.identity())

    async def arm(self, request: Request) -> Response:
        self._card()
        return JSONResponse(await self._service.arm())

    async def select_arm(self, request: Request) -> Response:
        self._card()
        body = await self._bodies.parsed(request, lambda body: body)
        name, schedules = fields.text(body, "name"), fields.mapping(body, "schedules")
        if not name or schedules is None:
            raise bad("an arm has a name and schedules (operator: schedule)", "schedules" if name else "name")
        if not all(isinstance(schedule, str) for schedule in schedules.values()):
            raise bad("schedules must map an operator's name to a schedule's name", "schedules")
        return JSONResponse(await self._service.select_arm(name, schedules, body))

    async def counters(self, request: Request) -> Response:
        self._card()
        return JSONResponse(await self._service.counters())

    def _card(self) -> ModelCard:
        if not self._service.ready or self._service.card is None:
            raise ApiError(503, "the model is still loading; ask again when /health answers 200")
        return self._service.card

    def _metrics(self) -> ServerMetrics:
        self._card()
        assert self._service.metrics is not None, "a ready service has metrics"
        return self._service.metrics

    async def _answer(self, request: Request, order: Order, writer: answers.Writer) -> Response:
        run, warning = self._service.submit(order), _warning(order)
        if order.stream:
            headers = _SSE_HEADERS | warning
            return StreamingResponse(_stream(run, writer), media_type="text/event-stream", headers=headers)
        try:
            response = await _unless_gone(request, _whole(run, writer))
        finally:
            run.close()
        response.headers.update(warning)
        return response


async def _stream(run: Run, writer: answers.Writer) -> AsyncIterator[bytes]:
    try:
        if (opening := writer.opening(run.progress)) is not None:
            yield answers.event(opening)
        async for piece in run.pieces():
            yield answers.event(writer.chunk(piece, run.progress))
        if (closing := writer.closing(run.progress)) is not None:
            yield answers.event(closing)
    except EngineRefused as error:
        yield answers.event(ApiError(400, str(error)).body())
    except EngineStopped as error:
        yield answers.event(ApiError(503, str(error)).body())
    except (EngineDead, RequestBroke) as error:
        yield answers.event(ApiError(500, str(error)).body())
    finally:
        run.close()
    yield answers.DONE


async def _whole(run: Run, writer: answers.Writer) -> Response:
    async for piece in run.pieces():
        writer.collect(piece)
    return JSONResponse(writer.whole(run.progress))


async def _unless_gone(request: Request, answer: Awaitable[Response]) -> Response:
    """The answer, or ClientDisconnect as soon as the client is gone."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        for task in (answering, leaving):
            task.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _warning(order: Order) -> dict[str, str]:
    """Fields that nobody knows were left unread; their names come from outside, so they are spelled as JSON."""
    if not order.ignored:
        return {}
    names = json.dumps(order.ignored)[1:-1].replace('"', "'")
    return {"Warning": f'299 dflash2 "ignored unknown fields: {names[:1000]}"'}


def _model(card: ModelCard) -> dict[str, object]:
    return {
        "id": card.name, "object": "model", "created": card.created, "owned_by": "dflash2",
        "max_model_len": card.max_model_len,
    }  # fmt: skip


class KeyCheck:
    """Asks every route but /health for `Authorization: Bearer KEY`; compares in constant time."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health" and not self._allowed(scope):
            refusal = ApiError(401, "send the server's API key as 'Authorization: Bearer KEY'", code="invalid_api_key")
            await refusal.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return hmac.compare_digest(given[0] if len(given) == 1 else b"", self._expected)


class Stops:
    """ASGI around the application: a request that is cancelled, as uvicorn does when it stops, is told so by 503."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if scope["type"] != "http" or begun:
                raise
            await ApiError(503, STOPPED, closes=True).response()(scope, receive, send)


def _said(status: int) -> Callable[[Request, Exception], Response]:
    def handler(request: Request, error: Exception) -> Response:
        return ApiError(status, str(error)).response()

    return handler


def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = error.headers or {}
    remedy = f"use {headers['Allow']}" if "Allow" in headers else "/openapi.json lists the routes"
    response = ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}; {remedy}").response()
    response.headers.update(headers)
    return response


def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


def _bug(request: Request, error: Exception) -> Response:
    return ApiError(500, "the server met a bug; its log has the traceback").response()


def build_app(
    service: Service, limits: Limits, lifespan: Callable[[], contextlib.AbstractAsyncContextManager[None]]
) -> ASGIApp:
    handlers = {
        ApiError: _api_error, HTTPException: _http_error, ClientDisconnect: _client_gone, QueueFull: _said(429),
        EngineBusy: _said(409), EngineRefused: _said(400), EngineStopped: _said(503), EngineDead: _said(500),
        RequestBroke: _said(500), Exception: _bug,
    }  # fmt: skip
    app = Starlette(
        routes=Routes(service, limits).table(), exception_handlers=handlers, lifespan=lambda _: lifespan()
    )  # fmt: skip
    keyed = app if limits.api_key is None else KeyCheck(app, limits.api_key)
    return Door(Stops(GivesBack(keyed)), limits.names if limits.api_key is None else None)

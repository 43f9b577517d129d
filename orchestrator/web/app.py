"""The pages as an ASGI application: routes, errors in a sentence, and a running campaign as server-sent events."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import scipy.special  # noqa: F401  # verdicts import it when they are asked for: the first page would wait for it
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from campaigns.errors import CampaignError, UsageError
from campaigns.judging.verdicts import Verdict
from campaigns.records import CampaignStatus
from orchestrator.stopping import request_stop
from orchestrator.web import pages
from orchestrator.web.guard import Guard, Token
from orchestrator.web.live import Live, live, pairs_of
from results.history.entries import Judged
from results.history.status import n_of_open_blocks
from results.reading.summary import summarise
from results.reports.headline import headline
from results.reports.html import templates
from results.reports.report import render
from results.store.copies import MigratedCopy
from results.store.reader import Reader

_HERE = Path(__file__).parent
_EVERY_S = 1.0  # between two looks at a running campaign
_MAX_FORM_BYTES = 4096


class Pages:
    """Renders the pages of one store. Every request opens the store anew, so that it may move or be upgraded.

    What outlives a request: judgements of campaigns that did not grow, and the copy of a store of an older version.
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        self._memory = Judged()
        self._judging = threading.Lock()  # one request at a time fills the memory
        self._copy = MigratedCopy()
        self.token = Token()
        self._environment = templates(_HERE / "templates")

    def render(self, template: str, /, **values: Any) -> str:
        return self._environment.get_template(template).render(store=str(self.store), **values)

    def home(self, words: Mapping[str, str], _: Mapping[str, str]) -> str:
        with self.reader() as reader, self._judging:
            listed = pages.campaigns(reader, words, self._memory)
            tags = sorted({tag for tags in reader.tags().values() for tag in tags})
            choices = {"verdict": list(Verdict), "tag": tags, "baseline": list(reader.baselines())}
        links = {n: "/?" + urlencode({**words, "page": n}) for n in (listed.page - 1, listed.page + 1)}
        return self.render("list.html", listed=listed, words=words, choices=choices, links=links)

    @asynccontextmanager
    async def living(self, _: Starlette) -> AsyncIterator[None]:
        """As long as the server: then the copy goes."""
        yield
        self.close()

    def close(self) -> None:
        self._copy.close()

    def reader(self) -> Reader:
        return Reader.open(self.store, self._copy)

    def campaign(self, words: Mapping[str, str], path: Mapping[str, str]) -> str:
        with self.reader() as reader:
            name = reader.resolve(path["id"])
            pairs = pairs_of(reader, name)
            now = live(reader, name, pairs)
            with self._judging:
                summary = summarise(reader, name, self._memory.effects)
        plot, rows = pages.pair_plot(name, summary.plan, pairs)
        shown = {"summary": summary, "headline": headline(summary), "plot": plot, "pairs": rows, "n_pairs": len(pairs)}
        return self.render("campaign.html", name=name, now=now, **shown)

    def live(self, name: str) -> Live:
        """What changes on a campaign's page while it runs."""
        with self.reader() as reader:
            return live(reader, name)

    def report(self, words: Mapping[str, str], path: Mapping[str, str]) -> str:
        with self.reader() as reader:
            return render(reader, reader.resolve(path["id"]), "html")

    def case(self, words: Mapping[str, str], path: Mapping[str, str]) -> str:
        with self.reader() as reader:
            name = reader.resolve(path["id"])
            found = pages.answers(reader, name, words)
        return self.render("case.html", name=name, key=words, answers=found)

    def history(self, words: Mapping[str, str], _: Mapping[str, str]) -> str:
        with self.reader() as reader, self._judging:
            fixtures, chosen, plot, rows = pages.over_time(reader, words, self._memory)
        return self.render("history.html", fixtures=fixtures, chosen=chosen, plot=plot, rows=rows, words=words)

    def compare(self, ids: list[str]) -> str:
        with self.reader() as reader:
            return self.render("compare.html", **pages.compared(reader, ids))

    def ask_stop(self, words: Mapping[str, str], path: Mapping[str, str]) -> str:
        with self.reader() as reader:
            name = reader.resolve(path["id"])
            running = reader.status(name) is CampaignStatus.RUNNING
            open_pairs = n_of_open_blocks(reader, name) if running else 0
        return self.render("stop.html", name=name, running=running, open_pairs=open_pairs, token=self.token.value)


def application(store: Path, port: int) -> ASGIApp:
    """Everything behind the guard of `port`."""
    made = Pages(store)
    routes = [
        Route("/", partial(_page, made.home)),
        Route("/history", partial(_page, made.history)),
        Route("/compare", partial(_compare, made)),
        Route("/campaign/{id}", partial(_page, made.campaign)),
        Route("/campaign/{id}/report", partial(_page, made.report)),
        Route("/campaign/{id}/case", partial(_page, made.case)),
        Route("/campaign/{id}/events", partial(_events, made)),
        Route("/campaign/{id}/stop", partial(_page, made.ask_stop)),
        Route("/campaign/{id}/stop", partial(_stop, made), methods=["POST"]),
        Mount("/static", StaticFiles(directory=_HERE / "static")),
    ]
    handlers = {HTTPException: partial(_refused, made)}
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=made.living), port)


async def _page(make: Callable[[Mapping[str, str], Mapping[str, str]], str], request: Request) -> Response:
    return await _answer(partial(make, dict(request.query_params), request.path_params))


async def _compare(made: Pages, request: Request) -> Response:
    return await _answer(partial(made.compare, request.query_params.getlist("id")))


async def _answer(make: Callable[[], str]) -> Response:
    """Rendered in a thread: a store is read meanwhile, and other pages go on."""
    try:
        return HTMLResponse(await run_in_threadpool(make))
    except UsageError as error:
        raise HTTPException(404, str(error)) from error
    except (CampaignError, SQLAlchemyError, OSError) as error:
        raise HTTPException(503, f"the store cannot be read now: {error}") from error


def _refused(made: Pages, request: Request, error: HTTPException) -> Response:
    return HTMLResponse(made.render("error.html", code=error.status_code, said=error.detail), error.status_code)


async def _events(made: Pages, request: Request) -> Response:
    name = await run_in_threadpool(_resolved, made, request.path_params["id"])
    return StreamingResponse(_panels(made, name, request), media_type="text/event-stream")


def _resolved(made: Pages, name: str) -> str:
    try:
        with made.reader() as reader:
            return reader.resolve(name)
    except CampaignError as error:
        raise HTTPException(404, str(error)) from error


async def _panels(made: Pages, name: str, request: Request) -> AsyncIterator[str]:
    """The panel whenever it has changed, a comment otherwise, and `done` when the campaign no longer runs."""
    last = ""
    while not await request.is_disconnected():
        try:
            now = await run_in_threadpool(made.live, name)
        except (CampaignError, SQLAlchemyError, OSError):
            yield ": the store cannot be read now\n\n"  # it is being moved or upgraded
        else:
            panel = made.render("live.html", now=now)
            yield f"event: panel\ndata: {json.dumps(panel)}\n\n" if panel != last else ": nothing new\n\n"
            last = panel
            if not now.running:
                yield "event: done\ndata: {}\n\n"
                return
        await asyncio.sleep(_EVERY_S)


async def _stop(made: Pages, request: Request) -> Response:
    """A form with the page's token; anything else is refused, whoever sends it."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "the form is too large")
    form = {key: values[0] for key, values in parse_qs(body.decode("utf-8", "replace")).items()}
    if not made.token.holds(form.get("token", "")):
        raise HTTPException(403, "this form is not from this page: open the campaign again and stop it there")
    reason = form.get("reason", "").strip() or "stopped on the page"
    after_block = form.get("when") == "block"
    await _answer(partial(request_stop, made.store, request.path_params["id"], reason, after_block=after_block))
    return RedirectResponse(f"/campaign/{request.path_params['id']}", 303)

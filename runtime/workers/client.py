"""The API process's side of the engine: starts a worker per rank, queues requests, hands on steps, ends everything.

One request runs at a time (the measured case is one live request); others wait in the order of arrival. Nothing here
blocks: workers write into sockets that the event loop drains, and a slow HTTP client only grows its own queue.
Knows processes and messages; knows neither HTTP nor torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.text.generation import Generation, Step
from runtime.workers.protocol import Message, decode, encode

_LINE_LIMIT_BYTES = 1 << 26
_STOP_SECONDS = 5.0
STOPPED = "the server is being stopped; ask another, or this one when it is back"


class QueueFull(Exception):
    """As many requests wait as the server allows."""


class EngineBusy(Exception):
    """Refused while a request runs or waits."""


class EngineRefused(Exception):
    """The engine said no to a call; the message is for the client."""


class RequestBroke(Exception):
    """The engine met an error in this request, and goes on with the others."""


class EngineDead(Exception):
    """A worker has ended; nothing can be served any more."""


class EngineStopped(EngineDead):
    """Somebody stops the server: nothing is wrong with it, and nothing can be served any more."""


@dataclass
class Worker:
    """One rank's process. `facts` is what it told when it was ready."""

    rank: int
    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    facts: Message | None = None

    def send(self, message: Message) -> None:
        self.writer.write(encode(message))


@dataclass
class Job:
    """A request on its way. The steps arrive in `steps`; an exception there ends it. Times are monotonic ns.

    `released`: its client wants no more of it. `over`: the engine has said its last word about it.
    """

    number: int
    generation: Generation
    queued_ns: int
    started_ns: int | None = None
    steps: asyncio.Queue[Step | Exception | None] = field(default_factory=asyncio.Queue)
    released: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aiter__(self) -> AsyncIterator[Step]:
        while (item := await self.steps.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


class EngineClient:
    """Owner of the workers. `on_death` is called once, with a sentence, when a worker ends by itself."""

    def __init__(self, world_size: int, max_waiting: int, on_death: Callable[[str], None]) -> None:
        self.workers: list[Worker] = []
        self._world_size = world_size
        self._max_waiting = max_waiting
        self._on_death = on_death
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._calls: dict[int, dict[int, asyncio.Future[Any]]] = {}
        self._numbers = itertools.count(1)
        self._readers: list[asyncio.Task[None]] = []
        self._dead: EngineDead | None = None
        self._closing = False
        self._all_ready = asyncio.Event()
        self._meeting: tempfile.TemporaryDirectory[str] | None = None

    @property
    def ready(self) -> bool:
        return self._all_ready.is_set() and self._dead is None

    @property
    def facts(self) -> Message:
        """Rank 0's facts; only once ready."""
        facts = self.workers[0].facts
        assert facts is not None, "facts are known once the engine is ready"
        return facts

    @property
    def num_running(self) -> int:
        return int(self._running is not None)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    async def wait_ready(self) -> None:
        await self._all_ready.wait()

    async def start(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        """Start one worker per rank; returns before they are ready."""
        for rank in range(self._world_size):
            worker = await _start_worker(rank, self._world_size, [*arguments, *self._rendezvous()], environment)
            self.workers.append(worker)
            self._readers.append(asyncio.create_task(self._read(worker)))

    def _rendezvous(self) -> list[str]:
        """Ranks find each other through a file that is theirs alone."""
        if self._world_size == 1:
            return []
        if self._meeting is None:
            self._meeting = tempfile.TemporaryDirectory(prefix="dflash2-ranks-")
        return [f"--rendezvous={self._meeting.name}/store"]

    def refuse(self) -> None:
        """No request is served any more: whoever runs or waits is told so."""
        if self._dead is None:
            self._end(EngineStopped(STOPPED))

    async def close(self) -> None:
        """End every worker: closed sockets first, then TERM, then KILL."""
        self._closing = True
        for worker in self.workers:
            worker.writer.close()
        for end in (subprocess.Popen.terminate, subprocess.Popen.kill):
            if await self._all_ended(_STOP_SECONDS):
                break
            for worker in self.workers:
                end(worker.process)
        await self._all_ended(_STOP_SECONDS)
        if self._meeting is not None:
            self._meeting.cleanup()
        for task in self._readers:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _all_ended(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if all(worker.process.poll() is not None for worker in self.workers):
                return True
            await asyncio.sleep(0.01)
        return False

    # Requests

    def submit(self, generation: Generation) -> Job:
        """Queue a request. Every job must be given back with `release`, whatever happens to its client."""
        if self._dead is not None:
            raise self._dead
        if self._running is not None and len(self._waiting) >= self._max_waiting:
            raise QueueFull(f"{len(self._waiting)} requests are waiting, which is the limit; try again later")
        job = Job(next(self._numbers), generation, time.monotonic_ns())
        self._waiting.append(job)
        self._dispatch()
        return job

    def release(self, job: Job) -> None:
        """The client is done with the job; a running one stops at its next round. Twice is once."""
        if job.released:
            return
        job.released = True
        with contextlib.suppress(ValueError):
            self._waiting.remove(job)
        if job is self._running:
            for worker in self.workers:
                worker.send({"do": "cancel", "job": job.number})

    def _dispatch(self) -> None:
        if self._running is not None or not self._waiting:
            return
        job = self._running = self._waiting.popleft()
        job.started_ns = time.monotonic_ns()
        for worker in self.workers:
            worker.send({"do": "generate", "job": job.number, "request": job.generation.to_json()})

    # Calls

    async def set_arm(self, schedules: Mapping[str, str]) -> list[Any]:
        """Refused while a request runs; one whose client has all it wants is waited for."""
        while self._dead is None and (job := self._running) is not None:
            if not job.released or self._waiting:
                raise EngineBusy("a request is running; select the arm between requests")
            await job.over.wait()
        return await self._call({"do": "set_arm", "schedules": dict(schedules)})

    async def ask(self, what: str) -> list[Any]:
        """`arm` or `counters` of every rank."""
        return await self._call({"do": what})

    async def _call(self, message: Message) -> list[Any]:
        if self._dead is not None:
            raise self._dead
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        futures = self._calls[number] = {worker.rank: loop.create_future() for worker in self.workers}
        for worker in self.workers:
            worker.send({**message, "call": number})
        try:
            results = await asyncio.gather(*futures.values(), return_exceptions=True)
        finally:
            del self._calls[number]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    # What the workers say

    async def _read(self, worker: Worker) -> None:
        reason = ""
        try:
            while line := await worker.reader.readline():
                message = decode(line)
                reason = message["message"] if message["event"] == "fatal" else reason
                self._hear(worker, message)
        except (ConnectionError, ValueError) as error:
            reason = str(error)
        if not self._closing:
            await self._bury(worker, reason)

    def _hear(self, worker: Worker, message: Message) -> None:
        match message["event"]:
            case "ready":
                worker.facts = message["facts"]
                if all(peer.facts is not None for peer in self.workers) and len(self.workers) == self._world_size:
                    self._all_ready.set()
            case "step" | "ended" | "failed" | "broke" if worker.rank == 0:
                self._hear_job(message)
            case "reply" | "refused":
                self._hear_reply(worker, message)

    def _hear_job(self, message: Message) -> None:
        job = self._running
        if job is None or job.number != message["job"]:
            return
        match message["event"]:
            case "step":
                job.steps.put_nowait(Step.from_json(message["step"]))
                return
            case "failed":
                job.steps.put_nowait(EngineRefused(message["message"]))
            case "broke":
                job.steps.put_nowait(RequestBroke(message["message"]))
            case "ended":
                job.steps.put_nowait(None)
        self._running = None
        job.over.set()
        self._dispatch()

    def _hear_reply(self, worker: Worker, message: Message) -> None:
        future = self._calls.get(message["call"], {}).get(worker.rank)
        if future is None or future.done():
            return
        if message["event"] == "reply":
            future.set_result(message["value"])
        else:
            future.set_exception(EngineRefused(message["message"]))

    async def _bury(self, worker: Worker, reason: str) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(worker.process.wait, _STOP_SECONDS)
        if self._dead is not None:
            return
        code = worker.process.returncode
        told = reason or f"the engine process of rank {worker.rank} ended unexpectedly (exit status {code})"
        # Whoever stops a server by TERM may send it to all its processes, and the worker may be first.
        self._end(EngineStopped(STOPPED) if code == -signal.SIGTERM else EngineDead(told))
        self._on_death(told)

    def _end(self, why: EngineDead) -> None:
        self._dead = why
        for job in [self._running, *self._waiting]:
            if job is not None:
                job.steps.put_nowait(why)
                job.over.set()
        for futures in self._calls.values():
            for future in futures.values():
                if not future.done():
                    future.set_exception(why)


async def _start_worker(rank: int, world_size: int, arguments: list[str], environment: Mapping[str, str]) -> Worker:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "runtime.workers.worker", f"--channel={theirs.fileno()}", f"--rank={rank}"]
    command += [f"--world-size={world_size}", f"--parent={os.getpid()}", *arguments]
    with theirs:
        process = subprocess.Popen(command, env=dict(environment), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    ours.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT_BYTES)
    return Worker(rank, process, reader, writer)

"""Who is still there: a joined head, asked by the driver; the driver, heard by its actors on other hosts.

A head that is gone says nothing, and Ray waits for it for minutes. An actor whose raylet hangs, or whose network is
cut, lives on with its servers and locks and will never be asked again: it ends itself when nobody has been heard for
SILENCE_S. All times are one host's own monotonic clock.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

BEAT_S = 10.0
SILENCE_S = 120.0
_ASK_S = 5.0
_CONNECT_S = 3.0
_PATIENCE_S = 20.0  # a head that starts again, or a network that hiccups


class Pulse:
    """Of the head at `address`, HOST:PORT; asked at most every few seconds, by any thread. Empty: there is none."""

    def __init__(self, address: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._address, self._clock = address, clock
        self._lock = threading.Lock()
        self._answered_s = self._asked_s = clock()
        self._why = ""

    def lost(self) -> str:
        """Why it is given up; empty while it answers, or has not been silent for long."""
        if not self._address:
            return ""
        with self._lock:
            if self._clock() - self._asked_s >= _ASK_S:
                self._look()
            silent_s = self._asked_s - self._answered_s
            return f"nobody answers there for {silent_s:.0f} s: {self._why}" if silent_s > _PATIENCE_S else ""

    def answers(self) -> bool:
        """Whether it answers now: what is asked of Ray without it waits for minutes."""
        if not self._address:
            return True
        with self._lock:
            self._look()
            return not self._why

    def _look(self) -> None:
        self._why = self._ask()
        self._asked_s = self._clock()
        self._answered_s = self._answered_s if self._why else self._asked_s

    def _ask(self) -> str:
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
        except OSError as error:
            return str(error)
        return ""


class Beats:
    """The driver's side: tells every actor, again and again, that it is there."""

    def __init__(self) -> None:
        self._actors: set[Any] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, actor: Any) -> None:
        with self._lock:
            self._actors.add(actor)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="beats")
                self._thread.start()

    def drop(self, actor: Any) -> None:
        with self._lock:
            self._actors.discard(actor)

    def end(self) -> None:
        """Before Ray is left: a call after that would start another."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(BEAT_S)

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            with self._lock:
                actors = list(self._actors)
            for actor in actors:
                with suppress(Exception):  # of Ray's own, for one that is gone: nobody waits for the answer
                    actor.beat.remote()


class Heard:
    """The actor's side. Its process ends where nobody has been heard: its reapers then end its servers, locks fall."""

    def __init__(self) -> None:
        self._heard_s = time.monotonic()
        threading.Thread(target=self._listen, daemon=True, name="heard").start()

    def beat(self) -> None:
        self._heard_s = time.monotonic()

    def _listen(self) -> None:
        while time.monotonic() - self._heard_s < SILENCE_S:
            time.sleep(BEAT_S / 2)
        os._exit(1)

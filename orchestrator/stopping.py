"""How a running campaign is told to end: by a person through a file, by a failure beside it, by the keyboard.

Every life asks after each pair (`Stopping.check`); whoever waits for a startup looks at `halted`. Knows files and
numbers of startups, nothing of what runs.
"""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path

from campaigns.errors import StoreUnwritable, UsageError
from campaigns.judging.verdicts import counted
from campaigns.records import CampaignStatus
from orchestrator.output.journal import outputs_folder
from results.history.status import n_of_open_blocks
from results.store.reader import Reader

_STOP, _STOP_AFTER_BLOCK = "stop", "stop-after-block"


class Stopped(Exception):
    """The operator asked for the end; the running pair was finished."""


class NotNeeded(Exception):
    """A startup before this one ended the campaign. What this one has measured stays; `resume` measures the rest."""


class Stopping:
    """Asked by all startups of one run; each of them may be in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.halted = threading.Event()
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._last: float = math.inf
        for request in (_STOP, _STOP_AFTER_BLOCK):
            (folder / request).unlink(missing_ok=True)  # one that an earlier life did not live to see

    def halt(self) -> None:
        """Every startup ends now, in order: its servers are stopped and its devices given back."""
        self.halted.set()

    def none_after(self, startup: int) -> None:
        """Startups behind this one end with their current block, and begin none."""
        with self._lock:
            self._last = min(self._last, startup)

    def check(self, startup: int, block_is_done: bool) -> None:
        """Raises Stopped where a person wants the end now, NotNeeded where an earlier startup made this one useless."""
        for name in (_STOP, _STOP_AFTER_BLOCK) if block_is_done else (_STOP,):
            if (reason := self._asked(name)) is not None:
                raise Stopped(reason)
        if block_is_done and startup > self._last:
            raise NotNeeded

    def _asked(self, name: str) -> str | None:
        """Why somebody asked for this; kept, because every startup must hear it and the file is taken once."""
        request = self._folder / name
        with self._lock:
            if request.exists():
                self._reasons[name] = request.read_text()
                request.unlink()
            return self._reasons.get(name)


def leave(request: Path, reason: str) -> None:
    """The file is there with its reason in it, or not there."""
    written = request.with_name(f".{request.name}.{os.getpid()}")
    written.write_text(reason)
    written.replace(request)


def request_stop(store_path: Path, campaign_id: str, reason: str, *, after_block: bool = False) -> str:
    """Ask the running driver to end after its current pair, or block: an authorised stop, not a failure."""
    with Reader.open(store_path) as reader:
        name = reader.resolve(campaign_id)
        status = reader.status(name)
        open_pairs = n_of_open_blocks(reader, name)
    if status is not CampaignStatus.RUNNING:
        raise UsageError(f"campaign {name} is {status}, not running: there is nothing to stop")
    request = outputs_folder(store_path, name) / (_STOP_AFTER_BLOCK if after_block else _STOP)
    try:
        leave(request, reason)
    except OSError as error:
        raise StoreUnwritable(f"{request} cannot be written ({error.strerror}): ask the campaign's owner") from error
    if after_block:
        return f"campaign {name} will end after its current block; no finished pair is lost"
    lost = f"{counted(open_pairs, 'finished pair')} of its block and the current one will be measured again by resume"
    none = f"campaign stop {name} --after-block loses none"
    return f"campaign {name} will end after its current pair{f'; {lost} ({none})' if open_pairs else ''}"

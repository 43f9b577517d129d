"""The structured log of one campaign: a JSON object a line, appended by every life of the campaign.

It tells the story (what happened when); the store holds the facts.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from campaigns.errors import StoreUnwritable
from campaigns.printable import json_text

_REFUSED = (
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.ENOTDIR,
    errno.EEXIST,
)


def outputs_folder(store_path: Path, campaign_id: str) -> Path:
    """Log and server folders of a campaign lie beside the store."""
    return store_path.parent / campaign_id


@contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """What a place refuses, permission or space, is the world's fault and said in a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        raise StoreUnwritable(
            f"{error.filename or folder} cannot be written ({error.strerror}): a campaign's folder lies beside "
            "its store; make room there or name another place with --store. Everything committed before is kept"
        ) from error


class Journal:
    """Appends to `folder/campaign.jsonl`; every line reaches the disk's cache at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "campaign.jsonl"
        self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        self._lock = threading.Lock()  # startups side by side write from threads of their own

    def write(self, event: str, **facts: Any) -> None:
        line = {"utc": time.time(), "event": event, **facts}
        text = json_text(line, default=_plain) + "\n"
        with self._lock:
            self._file.write(text)
            self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.write("error", kind=type(error).__name__, message=str(error))
        self._file.close()


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)

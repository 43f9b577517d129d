"""The structured log of one campaign: a JSON object a line, appended by every life of the campaign.

It tells the story (what happened when); the store holds the facts.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any


class Journal:
    """Appends to `folder/campaign.jsonl`; every line reaches the disk's cache at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "campaign.jsonl"
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, event: str, **facts: Any) -> None:
        line = {"utc": time.time(), "event": event, **facts}
        self._file.write(json.dumps(line, ensure_ascii=False, default=_plain) + "\n")
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

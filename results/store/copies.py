"""An older store at the newest revision, in a copy that lives as long as it is read."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from results.store.migrate import copy_store, migrate


class MigratedCopy:
    """An older store at the newest revision, copied again when it has changed; for one process that reads it often."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._of: tuple[tuple[int, ...], ...] = ()
        self._lock = threading.Lock()

    def of(self, store: Path) -> Path:
        """Readers of the copy before keep it open; its folder goes."""
        with self._lock:
            state = _state(store)
            if self._folder is None or self._of != state:
                folder = tempfile.TemporaryDirectory(prefix="campaign-store-")
                copy = Path(folder.name) / "store.sqlite"
                copy_store(store, copy)
                migrate(copy)
                self.close()
                self._folder, self._of = folder, state
            return Path(self._folder.name) / "store.sqlite"

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _state(store: Path) -> tuple[tuple[int, ...], ...]:
    """Which file it is, and when it and the log beside it were last written."""
    files = (store, store.with_name(f"{store.name}-wal"))
    found = [file.stat() for file in files if file.exists()]
    return tuple((stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in found)

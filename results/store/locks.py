"""One writer per campaign: a kernel lock on a small file beside the store, gone with the process that held it.

SQLite orders the transactions of writers of different campaigns; this lock keeps two drivers off the same one.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from campaigns.errors import StoreUnwritable

_GLANCE_S = 1.0  # a look of `has_writer` at the lock must not read as a writer, however many look
_TRY_S = 0.005


def has_writer(store: Path, campaign_id: str) -> bool:
    """Whether a living process writes this campaign; a reader on another host cannot know and gets False."""
    try:
        fd = os.open(_lock_path(store, campaign_id), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _lock_path(store: Path, campaign_id: str) -> Path:
    return store.with_name(f"{store.name}.{campaign_id}.writer")


class CampaignLock:
    def __init__(self, store: Path, campaign_id: str) -> None:
        self.path = _lock_path(store, campaign_id)
        self._fd = self._acquire(campaign_id)

    def release(self) -> None:
        if self._fd >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _acquire(self, campaign_id: str) -> int:
        deadline = time.monotonic() + _GLANCE_S
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if time.monotonic() < deadline:
                    os.close(fd)
                    time.sleep(_TRY_S)
                    continue
                holder = os.read(fd, 32).decode() or "unknown"
                os.close(fd)
                raise StoreUnwritable(
                    f"campaign {campaign_id} is being written by process {holder}: wait for it, or stop it"
                ) from error
            if self._still_there(fd):
                os.ftruncate(fd, 0)
                os.write(fd, str(os.getpid()).encode())
                return fd
            os.close(fd)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnwritable(
                f"the lock {self.path} cannot be made ({error.strerror}): name a writable place with --store"
            ) from error

    def _still_there(self, fd: int) -> bool:
        """False where the former holder removed the file between our open and our lock."""
        try:
            return self.path.stat().st_ino == os.fstat(fd).st_ino
        except FileNotFoundError:
            return False

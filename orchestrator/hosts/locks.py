"""Kernel locks per device UUID, in a folder that all users of a host share.

Two for each device: a campaign *claims* its devices from its first startup to its last, and each startup *leases* them
while it uses them. A lock is flock(2) on an open descriptor: it lasts until the last copy of that descriptor is closed,
and the reaper of a server holds one of the lease. So a lock is never removed by hand and never unlocked explicitly.
Beside the locks lies a mark: why the device was not clean when its last lease ended. No file is ever deleted, because
in a sticky folder only its owner may do that: a free lock still names its last holder, and a cleared mark holds an
empty object. Files of others are opened without O_CREAT, which Linux forbids there (fs.protected_regular).

Knows nothing of what a device is.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from campaigns.errors import WorldError
from campaigns.records import Process

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DEFAULT_FOLDER = "/tmp/dflash2-locks"  # not under TMPDIR: every user must mean the same folder


class Kind(StrEnum):
    LEASE = "lock"
    CLAIM = "claim"


@dataclass(frozen=True)
class Holder:
    """Who has a device, written into its lock; true only while the lock is held."""

    name: str  # campaign and startup
    user: str
    host: str
    pid: int
    since_utc: str

    def __str__(self) -> str:
        return f"{self.name} of {self.user} on {self.host} (PID {self.pid}, since {self.since_utc})"


@dataclass(frozen=True)
class Mark:
    """A device that did not come back clean."""

    reason: str
    processes: tuple[Process, ...]
    boot_id: str
    utc: str
    holder: str


class LockFolder:
    """Raises WorldError, with the path and the remedy, for every file that cannot be opened or written."""

    def __init__(self, path: str = "") -> None:
        self.path = Path(path or DEFAULT_FOLDER)
        try:
            self._create()
        except OSError as error:
            raise self._fault(self.path, error) from error

    def _create(self) -> None:
        with suppress(FileExistsError):
            self.path.mkdir()
            self.path.chmod(0o1777)
        if not stat.S_ISDIR(self.path.lstat().st_mode):
            raise NotADirectoryError("not a folder")

    def try_lock(self, uuid: str, holder: Holder, kind: Kind = Kind.LEASE) -> int | None:
        """A descriptor that holds the lock, or None while somebody else has it."""
        path = self._lock_path(uuid, kind)
        fd = self._open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError as error:
            os.close(fd)
            raise self._fault(path, error) from error
        try:
            _rewrite(fd, asdict(holder))
        except OSError as error:
            os.close(fd)  # and the lock with it
            raise self._fault(path, error) from error
        return fd

    def is_held(self, uuid: str, kinds: Iterable[Kind] = Kind) -> bool:
        """Whether the device is leased or claimed."""
        return any(self._is_locked(self._lock_path(uuid, kind)) for kind in kinds)

    def _is_locked(self, path: Path) -> bool:
        """Asks with a shared lock, which an owner's exclusive one refuses and which is given back at once."""
        if not self._exists(path):
            return False
        fd = self._open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            raise self._fault(path, error) from error
        finally:
            os.close(fd)
        return False

    def _exists(self, path: Path) -> bool:
        try:
            return path.exists()
        except OSError as error:  # a folder that may not be searched
            raise self._fault(path, error) from error

    def holder(self, uuid: str) -> str:
        """Who says to hold the lease, else the claim; meaningful while one of them is held."""
        kind = Kind.LEASE if self.is_held(uuid, [Kind.LEASE]) else Kind.CLAIM
        content = self._read(self._lock_path(uuid, kind))
        with suppress(TypeError):
            return str(Holder(**content))
        return "somebody who left no name"

    def mark(self, uuid: str) -> Mark | None:
        content = self._read(self._mark_path(uuid))
        if not content:
            return None
        try:
            processes = tuple(Process(**process) for process in content.pop("processes"))
            return Mark(processes=processes, **content)
        except (TypeError, KeyError, AttributeError) as error:
            raise WorldError(
                f"{self._mark_path(uuid)} is not a mark of this program ({error}): look at it, then empty the file."
            ) from error

    def set_mark(self, uuid: str, mark: Mark | None) -> None:
        fd = self._open(self._mark_path(uuid))
        try:
            _rewrite(fd, asdict(mark) if mark else {})
        except OSError as error:
            raise self._fault(self._mark_path(uuid), error) from error
        finally:
            os.close(fd)

    def uuids(self) -> tuple[str, ...]:
        """Every device that was ever leased through this folder."""
        return tuple(sorted({path.stem for kind in Kind for path in self.path.glob(f"*.{kind}")}))

    def _lock_path(self, uuid: str, kind: Kind) -> Path:
        return self.path / f"{uuid}.{kind}"

    def _mark_path(self, uuid: str) -> Path:
        return self.path / f"{uuid}.mark"

    def _open(self, path: Path) -> int:
        """Read-write; creates a file that every user may write, whole or not at all."""
        try:
            if not path.exists():
                _create_shared(path)
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            raise self._fault(path, error) from error

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            content = json.loads(path.read_text() or "{}")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._fault(path, error) from error
        except ValueError:
            return {}  # its owner is just writing
        return content if isinstance(content, dict) else {}

    def _fault(self, path: Path, error: OSError) -> WorldError:
        if error.errno in _NO_ROOM:
            return WorldError(
                f"Device locks cannot be kept: {path}: {error.strerror}. Make room there, or choose another folder as "
                "lease.lock_dir; all users must name the same one."
            )
        return WorldError(
            f"Device locks cannot be kept: {path}: {error.strerror or error}. Make {self.path} a folder that every "
            "user may write (mode 1777), or choose another as lease.lock_dir; all users must name the same one."
        )


def _create_shared(path: Path) -> None:
    fd, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        os.fchmod(fd, 0o666)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.close(fd)
        Path(temporary).unlink()


def _rewrite(fd: int, content: Mapping[str, Any]) -> None:
    """Written over before it is cut: what a full disk refuses leaves the old content, a mark above all."""
    text = json.dumps(content).encode()
    if os.pwrite(fd, text, 0) != len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(fd, len(text))


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)

"""The files that processes run from: what the kernel says they mapped as code, by content.

A server of somebody else's names its program; which libraries that loads, nobody says but /proc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.checkouts.trees import file_sha256


def mapped_code(pids: Iterable[int], began_s: float) -> dict[str, str]:
    """Path -> SHA-256. Files written since `began_s` (time.time()) are what the server itself compiled: left out."""
    paths = {path for pid in pids for path in _executable(pid)}
    found = {}
    for path in sorted(paths):
        with suppress(OSError):  # gone since, or of another mount
            if Path(path).stat().st_mtime < began_s:
                found[path] = file_sha256(Path(path))
    return found


def _executable(pid: int) -> Iterator[str]:
    """Paths of the mappings that may be run; a process that is gone has none."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
            _, rights, *_, name = line.split(maxsplit=5) if line.count(" /") else ("", "", "")
            if "x" in rights and not name.endswith(" (deleted)"):
                yield name

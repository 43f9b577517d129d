"""Hashes of folders by what lies in them: code, checkpoints.

A tree's hash is SHA-256 over the lines `path NUL sha256-of-content LF` of its files in the order of their paths, byte
code and hidden files left out (docs/wire.md).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

CONTROL_PLANE = ("campaigns", "results", "orchestrator")  # not conf/: a campaign keeps its configuration
DATA_PLANE = ("runtime", "kernels")

_file_hashes: dict[tuple[int, int, int, int], str] = {}


def file_sha256(path: Path) -> str:
    """SHA-256 of the content, cached by device, inode, size and time of change: weights are read once."""
    stat = path.stat()
    key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    if key not in _file_hashes:
        with path.open("rb") as file:
            _file_hashes[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _file_hashes[key]


def tree_sha256(root: Path, names: Iterable[str]) -> str:
    """Hash of the named folders (or files) below `root`, by relative path and content."""
    root = root.absolute()
    above = len(str(root).rstrip("/")) + 1
    paths = sorted((path[above:], path) for name in names for path in _walk(root / name))
    lines = (f"{name}\0{file_sha256(Path(path))}\n" for name, path in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def files_below(path: Path) -> list[Path]:
    """A file itself, or those of a folder that count."""
    return [Path(file) for file in _walk(path)]


def _walk(path: Path) -> Iterator[str]:
    """In strings, and not into folders that do not count: every plan looks at thousands of files."""
    if path.is_file():
        yield str(path)
    for folder, below, names in os.walk(path):
        below[:] = filter(_counts, below)
        files = (f"{folder}/{name}" for name in names if _counts(name) and not name.endswith(".pyc"))
        yield from filter(os.path.isfile, files)


def _counts(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"

"""Hashes of folders by what lies in them: code, checkpoints.

A tree's hash is SHA-256 over the lines `path NUL sha256-of-content LF` of its files in the order of their paths, byte
code and hidden files left out (docs/wire.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
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
    paths = sorted((path.relative_to(root).as_posix(), path) for name in names for path in files_below(root / name))
    lines = (f"{name}\0{file_sha256(path)}\n" for name, path in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def files_below(path: Path) -> list[Path]:
    """A file itself, or those of a folder that count."""
    if path.is_file():
        return [path]
    return [
        file
        for file in path.rglob("*")
        if file.is_file()
        and file.suffix != ".pyc"
        and not any(part.startswith(".") or part == "__pycache__" for part in file.relative_to(path).parts)
    ]

"""Records of a dataset file as datasets are published: JSON lines, a JSON list or one JSON object, gzipped or not.

Knows nothing of the datasets' fields. Everything that is wrong with a file is said in one sentence.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.errors import UsageError

_GZIP = b"\x1f\x8b"
MAX_UNPACKED_BYTES = 4 << 30


@dataclass(frozen=True)
class Source:
    """One file: hash of its content, packed or not, and records in their order."""

    name: str
    sha256: str
    records: tuple[Mapping[str, Any], ...]
    lines: tuple[int, ...] = ()  # of each record, from 1, in a file of JSON lines

    @classmethod
    def open(cls, path: Path) -> Source:
        data = _unpacked(path, _read(path))
        rows, lines = _documents(path, _text(path, data))
        source = cls(path.name, hashlib.sha256(data).hexdigest(), tuple(rows), lines)
        if not rows:
            raise UsageError(f"{path}: holds no record")
        for n, row in enumerate(rows):
            if not isinstance(row, dict):
                raise UsageError(f"{source.at(n)}: a JSON object was expected, found {type(row).__name__}")
        return source

    def need(self, record: int, **kinds: type) -> tuple[Any, ...]:
        """The fields of one record, by name and type; what is not there as it should be is named."""
        raw = self.records[record]
        for name, kind in kinds.items():
            if name not in raw:
                raise self.wrong(record, f"field {name!r} is missing, there are {sorted(raw)}")
            if not isinstance(raw[name], kind):
                raise self.wrong(record, f"field {name!r} is {type(raw[name]).__name__} and should be {kind.__name__}")
        return tuple(raw[name] for name in kinds)

    def wrong(self, record: int, what: str) -> UsageError:
        return UsageError(f"{self.at(record)}: {what}; is this the right file for the dataset?")

    def at(self, record: int) -> str:
        """Where a person looks for it. Records are counted from 0, as in the ids of their cases."""
        line = f" (line {self.lines[record]})" if self.lines else ""
        return f"{self.name}, record {record}{line}"


def open_all(paths: Iterable[Path]) -> tuple[Source, ...]:
    """In the order of their hashes: neither names nor the order of options may change what is chosen."""
    return tuple(sorted((Source.open(path) for path in paths), key=lambda source: source.sha256))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); name a file of the dataset") from error


def _unpacked(path: Path, data: bytes) -> bytes:
    try:
        return _gunzip(path, data) if data.startswith(_GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: damaged gzip data ({error}); fetch the file again") from error


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}; is it a dataset file?") from error


def _gunzip(path: Path, data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        unpacked = packed.read(MAX_UNPACKED_BYTES + 1)
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise UsageError(f"{path}: unpacks to more than {MAX_UNPACKED_BYTES} bytes; this is no dataset file")
    return unpacked


def _documents(path: Path, text: str) -> tuple[list[Any], tuple[int, ...]]:
    """Documents, and where in a file of JSON lines each stands."""
    try:
        whole = json.loads(text)  # fails at the second line of a file of JSON lines
        return (whole if isinstance(whole, list) else [whole]), ()
    except (ValueError, RecursionError):
        # not str.splitlines: records may hold U+2028 and the like
        numbered = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        return [_line(path, n, line) for n, line in numbered], tuple(n for n, _ in numbered)


def _line(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}, line {line}: no JSON ({error}); correct it, or fetch the file again") from error

"""What this process prints: in any encoding, and whoever read it may leave.

A reader that leaves (`campaign history | head`, a closed window) shows as EPIPE or EIO of a write; so does a pipe to
one of our own processes that died. Only the state of our streams themselves tells the two apart. A standard output that
refuses (a full disk, closed from the beginning) is an error of the world; what standard error refuses is dropped.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast

from campaigns.errors import OutputRefused
from campaigns.printable import printable

_GONE = (errno.EPIPE, errno.EIO)
_PLAIN = {"±": "+/-", "×": "x", "−": "-", "–": "-", "—": "-", "→": "->", "≤": "<=", "≥": ">=", "µ": "u", "…": "..."}


def print_anything() -> None:
    """Have stdout and stderr take every character. What their encoding lacks is spelt out, and so is what would command
    a terminal: names in a store are anybody's, and what is piped now is looked at later.
    """
    codecs.register_error("spelt", _spelt)
    _open_standard_descriptors()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        with suppress(AttributeError):  # a test's own stream
            stream.reconfigure(errors="spelt")
        if stream is not None and not isinstance(stream, Harmless | Answer):
            setattr(sys, name, Harmless(stream))
    if not isinstance(sys.stdout, Answer):
        sys.stdout = cast(TextIO, Answer(cast(TextIO, sys.stdout or _Closed())))


def _open_standard_descriptors() -> None:
    """One that was closed (`campaign … >&-`) would become the next file that is opened, and be written into."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free: this one


class _Wrapped(io.TextIOBase):
    """A text stream in front of another."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    # The stubs of io call it an attribute; it follows the wrapped stream here.
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding


class Harmless(_Wrapped):
    """What commands a terminal is shown and not obeyed; what we draw ourselves goes to the stream behind it."""

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)


class _Closed(io.StringIO):
    """Where a standard output should be that was closed before this program began."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class Answer(_Wrapped):
    """Standard output: what it refuses is lost, and whoever asked must know."""

    def write(self, text: str) -> int:
        with _told():
            return self.stream.write(text)

    def flush(self) -> None:
        with _told():
            self.stream.flush()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if reader_left(error):
            raise
        raise OutputRefused(
            f"standard output cannot be written ({error.strerror}): what should stand there is lost, ask again"
        ) from error


def drawing(stream: TextIO) -> TextIO:
    """Where a progress bar may be drawn, for as long as somebody looks."""
    behind = stream
    while isinstance(behind, Harmless | Answer):
        behind = behind.stream
    return cast(TextIO, Lasting(behind))


def _spelt(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    plain = "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in lacking)
    return plain, error.end


def reader_left(error: BaseException) -> bool:
    """Whether a failed write was to our own stdout or stderr, whose reader is gone."""
    if not (isinstance(error, OSError) and error.errno in _GONE):
        return False
    return any(map(_is_gone, (1, 2)))


def _is_gone(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)  # errors and hang-ups are always reported
    return bool(poll.poll(0))


def fall_silent() -> None:
    """Send what is still printed nowhere, so that the interpreter's last flush cannot fail."""
    for fd in (1, 2):
        if _is_gone(fd):
            _discard(fd)


def flush() -> None:
    """What is still in the buffers; a reader that left meanwhile changes no exit code. OutputRefused of stdout."""
    Lasting(sys.stderr).flush()
    try:
        Lasting(sys.stdout).flush()
    except OutputRefused:
        _discard(1)
        raise


def _discard(fd: int) -> None:
    """What is still in its buffer goes nowhere, so that the interpreter's last flush does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, fd)
    os.close(null)


class Lasting(_Wrapped):
    """A text stream that outlives its reader: a campaign goes on when nobody looks, its log and store have it all."""

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError as error:
            _drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            _drop(error)
        except ValueError:
            return  # it was closed


def _drop(error: OSError) -> None:
    if reader_left(error):
        fall_silent()

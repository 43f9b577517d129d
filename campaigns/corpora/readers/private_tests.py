"""Tests of the official LiveCodeBench release: JSON, or (the private ones) base64 of zlib of a pickled JSON text.

A pickle from the network may run anything, so the unpickler here refuses every class and function: what is left can
build texts, numbers and containers only.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from typing import Any, NoReturn

from campaigns.errors import UsageError

MAX_UNPACKED_BYTES = 1 << 30


class PlainUnpickler(pickle.Unpickler):
    """An unpickler without globals: `find_class` is the only door through which a pickle reaches code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, and no class is allowed")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it asks for a persistent object")


def unpack(where: str, packed: str) -> list[dict[str, str]]:
    """The tests as {"input", "output", "testtype"}; none for an empty text. `where` begins every complaint."""
    if not packed:
        return []
    return plain(where, packed if packed.lstrip().startswith("[") else _unpickle(where, _inflate(where, packed)))


def plain(where: str, text: Any) -> list[dict[str, str]]:
    """Tests that are a JSON text already."""
    try:
        tests = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{where}: the tests hold no JSON ({error})") from error
    if not isinstance(tests, list) or not all(map(_is_test, tests)):
        raise UsageError(f"{where}: the tests are no list of input and output")
    return tests


def _is_test(test: Any) -> bool:
    return isinstance(test, dict) and all(isinstance(test.get(name), str) for name in ("input", "output"))


def _inflate(where: str, packed: str) -> bytes:
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES)
    except (ValueError, zlib.error) as error:  # binascii.Error is a ValueError, and so is what is not ASCII
        raise UsageError(f"{where}: the private tests are damaged ({error}); fetch the file again") from error
    if not inflater.eof:
        raise UsageError(f"{where}: the private tests are cut short or unpack to more than {MAX_UNPACKED_BYTES} bytes")
    return data


def _unpickle(where: str, data: bytes) -> Any:
    try:
        return PlainUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a hostile pickle may raise anything
        raise UsageError(f"{where}: the private tests are refused: {error}") from error

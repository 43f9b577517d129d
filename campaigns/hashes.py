"""Hashes of integer sequences: token ids, and the emitted, accepted and drafted counts of an answer's rounds."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

VERSION = 1


def token_sha256(ids: Sequence[int]) -> str:
    """SHA-256 over a version byte and the ids as little-endian uint32."""
    return hashlib.sha256(struct.pack(f"<B{len(ids)}I", VERSION, *ids)).hexdigest()


def counts_sha256(counts: Sequence[int | None] | None) -> str | None:
    """The same over one count per round; None where any is unknown: an incomplete sequence equals nothing."""
    if counts is None:
        return None
    known = [count for count in counts if count is not None]
    return token_sha256(known) if len(known) == len(counts) else None

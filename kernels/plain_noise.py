"""Random numbers by key in plain Python, for the references: what `csrc/include/noise.h` computes.

SplitMix64's finaliser (Steele, Lea, Flood 2014) once per part of the key (stream, seed, position, token).
"""

from __future__ import annotations

import math

DRAFT, ACCEPT, TARGET = 0x243F6A8885A308D3, 0x13198A2E03707344, 0x1F83D9ABFB41BD6B
_GOLDEN, _WORD = 0x9E3779B97F4A7C15, (1 << 64) - 1


def uniform(stream: int, seed: int, position: int, token: int | None = None) -> float:
    """In (0, 1)."""
    state = _mix(_mix(seed + stream) + position * _GOLDEN)
    if token is not None:
        state = _mix(state + (token + 1) * _GOLDEN)
    return (float(state >> 11) + 0.5) * 2.0**-53


def exponential(stream: int, seed: int, position: int, token: int) -> float:
    return -math.log(uniform(stream, seed, position, token))


def _mix(x: int) -> int:
    x &= _WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _WORD
    return x ^ x >> 31

"""Random numbers without a generator: a hash of (stream, seed, absolute position, token).

The noise at a position does not depend on where a block began, on what was drawn before, or on the device. The
streams of the drafter's draws, of the acceptance tests and of the target's draws are independent. The hash is the
finaliser of SplitMix64 (Steele, Lea, Flood 2014), applied once per key part, in wrapping int64 arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

DRAFT, ACCEPT, TARGET = 0x243F6A8885A308D3, 0x13198A2E03707344, 0x1F83D9ABFB41BD6B

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def signed(value: int) -> int:
    """Any integer as the int64 with the same low 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def uniform(stream: int, seed: Tensor, position: Tensor, token: Tensor | None = None) -> Tensor:
    """FP64 in (0, 1) for int64 keys of any shapes that broadcast together."""
    state = _mix(seed + signed(stream))
    state = _mix(state + position * signed(_GOLDEN))
    if token is not None:
        state = _mix(state + (token + 1) * signed(_GOLDEN))
    return (_shift(state, 11).double() + 0.5) * 2.0**-53


def exponential(stream: int, seed: Tensor, position: Tensor, token: Tensor) -> Tensor:
    """Standard exponential noise; argmax of `weight / noise` over tokens draws proportionally to `weight`."""
    return -uniform(stream, seed, position, token).log()


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift right of an int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * signed(_FIRST)
    x = (x ^ _shift(x, 27)) * signed(_SECOND)
    return x ^ _shift(x, 31)

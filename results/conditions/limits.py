"""How fast a round could be at most: the bytes that the server says it must move, over its device's bandwidth.

The server counts them from its tensors (`round_bytes`: fixed, and per token of context); bandwidths are the vendors'
datasheet figures, so that no measurement lies below the limit. None where a server does not tell, where servers tell
different figures, and for devices not listed here, CPUs among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.store.reader import Life

# Bytes per second by the name that NVML and CUDA give.
BANDWIDTHS: Mapping[str, float] = {
    "NVIDIA H200": 4.8e12,
    "NVIDIA H100 80GB HBM3": 3.35e12,
    "NVIDIA H100 PCIe": 2.0e12,
    "NVIDIA A100-SXM4-80GB": 2.039e12,
    "NVIDIA A100-SXM4-40GB": 1.555e12,
}


@dataclass(frozen=True)
class Limit:
    """Of a whole round on each device, whatever arm it is of."""

    fixed_bytes: int
    bytes_per_token: int
    device: str
    bandwidth: float  # bytes per second

    def ms(self, context: int) -> float:
        """Least milliseconds of a round behind `context` tokens."""
        return (self.fixed_bytes + self.bytes_per_token * context) / self.bandwidth * 1e3

    def words(self) -> str:
        fixed, terabytes = self.fixed_bytes / 1e9, self.bandwidth / 1e12
        return (
            f"Limit: {fixed:.2f} GB a round and {self.bytes_per_token} bytes a token of context, by the server's "
            f"tensors, at the {terabytes:.2f} TB/s of the {self.device}'s datasheet."
        )


def limit_of(lives: Sequence[Life]) -> Limit | None:
    told = [_told(life.startup.identity) for life in lives]
    if not told or told[0] is None or any(each != told[0] for each in told):
        return None
    return told[0]


def _told(identity: Mapping[str, Any]) -> Limit | None:
    moved, names = identity.get("round_bytes"), {str(d.get("name")) for d in identity.get("devices") or ()}
    if not isinstance(moved, Mapping) or len(names) != 1:
        return None
    device = names.pop()
    fixed, per_token = moved.get("fixed"), moved.get("per_token")
    if device not in BANDWIDTHS or not isinstance(fixed, int) or not isinstance(per_token, int):
        return None
    return Limit(fixed, per_token, device, BANDWIDTHS[device])

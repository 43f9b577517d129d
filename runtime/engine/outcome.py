"""What the host learns of a round: one small tensor, copied while the device goes on with what follows from it.

It is what `kernels.accept` makes, int64 [4 + n]: whether the logits were broken, whether a tie was cut (the verdict
does not hold then), how many of the n drafts were accepted, the token behind them, the drafts. Knows no models and no
memory.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from runtime.speculation.sampling import bad_logits

MOST_DRAFTS = 31


class Outcome(NamedTuple):
    """`tokens` leave the engine: the accepted drafts and the token behind them."""

    accepted: int
    tokens: list[int]
    cut_tie: bool


class Landing:
    """Where outcomes arrive, one at a time: on CUDA in pinned memory, so that only this copy is waited for."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None
        pinned = torch.empty(4 + MOST_DRAFTS, dtype=torch.long, pin_memory=self._event is not None)
        self._pinned, self._arriving = pinned, pinned[:0]

    def send(self, packed: Tensor) -> None:
        """Begin the copy; whatever is launched behind this call does not delay it."""
        self._arriving = self._pinned[: len(packed)]
        self._arriving.copy_(packed, non_blocking=True)
        if self._event is not None:
            self._event.record()

    def read(self) -> Outcome:
        """Wait for what was sent last. The host waits here, once a round."""
        if self._event is not None:
            self._event.synchronize()
        broken, cut_tie, accepted, token, *drafts = self._arriving.tolist()
        if broken:
            raise bad_logits()
        return Outcome(accepted, [*drafts[:accepted], token], bool(cut_tie))

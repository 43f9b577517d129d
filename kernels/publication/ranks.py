"""The ranks that publish to one another, and the memory through which native schedules do.

Every rank has an *inbox* that the others write into: two slots, each with the rows of every rank. Publication `epoch`
uses slot `epoch % 2`. Nothing is ever reset: what a rank finds counts only if it bears the epoch it waits for. A rank
writes epoch e + 2 where e stood only after it has all of e + 1, which the others send once they are done with e.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SLOTS, MAX_ROWS, MAX_WIDTH, MAX_RANKS = 2, 8, 8192, 8
ROW_VALUES = MAX_ROWS * MAX_WIDTH  # of one rank in one slot


@dataclass(frozen=True, eq=False)
class Mail:
    """One rank's end. `inboxes` are the addresses of all ranks' inboxes as this process sees them, its own among them.

    `state` int32 [4] on the rank's device: the last epoch, blocks that arrived, the lost rank + 1. `fault` int32 [2] in
    the host's memory: the lost rank + 1 and the epoch in which it was missed. `keep` holds what the addresses point to.
    """

    inboxes: tuple[int, ...]
    state: torch.Tensor
    fault: torch.Tensor
    keep: Any = None


class Ranks:
    """This rank of `size`. `gather` gives every rank's tensor in rank order; every rank calls it at the same point.

    `place` is a path prefix that the ranks of a host share and nobody else uses. `apart`: see `Problem`. `limit_s` is
    how long a native schedule waits for a rank before it gives the group up.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        gather: Callable[[torch.Tensor], list[torch.Tensor]],
        place: str = "",
        apart: str = "",
        limit_s: float = 30.0,
    ) -> None:
        self.rank, self.size, self.gather = rank, size, gather
        self.place, self.apart, self.limit_s = place, apart, limit_s
        self.mail: Mail | None = None
        """Made by the first native publication, in which all ranks take part."""

    def lost(self) -> str:
        """Who was waited for in vain, in a sentence; empty while nobody was. Never waits for the device."""
        if self.mail is None or not int(self.mail.fault[0]):
            return ""
        lost, epoch = self.mail.fault.tolist()
        return (
            f"rank {self.rank} waited {self.limit_s:g} s for rank {lost - 1} in publication {epoch}: it stands still "
            "or is gone, and all others wait for it"
        )

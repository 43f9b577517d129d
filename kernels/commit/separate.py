"""The default commit: torch's operations, without the host. Slots of rejected rows keep what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.commit.problem import Problem, Window
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(packed: torch.Tensor, bonus: torch.Tensor, selector: torch.Tensor, window: Window | None) -> torch.Tensor:
    import torch  # on first use, so that listing schedules does not load it

    sound = ~packed[:2].any(0, keepdim=True)
    keep = (packed[2:3] + 1) * sound
    selector.copy_(torch.where(sound, keep, selector))
    if window is not None:
        store(window, bonus[1:2], keep)
    return torch.where(sound, torch.cat((packed[3:4], bonus[1:2] + keep, bonus[2:3])), bonus)


def store(window: Window, first: torch.Tensor, keep: torch.Tensor) -> None:
    """The first `keep` [1] rows, at positions `first` [1], `first + 1`, …; a ring has as many slots or more."""
    import torch  # on first use, as above

    offsets = torch.arange(window.rows.shape[2], device=window.rows.device)
    kept = (offsets < keep)[:, None, None]
    slots = {ring: (first + offsets) % ring for ring in {len(k) for k, _ in window.rings}}
    for layer, pair in zip(window.rings, window.rows, strict=True):
        for held, new in zip(layer, pair, strict=True):
            places = slots[len(held)]
            held.index_copy_(0, places, torch.where(kept, new.to(held.dtype), held[places]))
    window.length.add_(keep)


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(rel_l2=0.0, statement="copies and integers"),
    guard=guard,
    run=run,
    summary="torch: one write per layer, K and V",
)

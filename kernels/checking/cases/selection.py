"""Selection problems: ties inside the k, at the cut and across the whole row, signed zeros, infinities, wide rows."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.registry import Schedule
from kernels.selection import OP, Candidates, problem_of


def coarse(values: Tensor) -> Tensor:
    """The same logits on a grid of a quarter: ties everywhere, some of them between 0.0 and -0.0."""
    return (values * 4).trunc() / 4


def apart(values: Tensor, k: int) -> Tensor:
    """All below zero, the k + 1 largest near the end of a row, a few dozen places from it and from one another.

    What a kernel takes for a logit behind the row, a zero say, beats them all; and no other run of the row can help.
    """
    vocab = values.shape[1]
    low = -8.0 - values.abs()
    best = vocab - 1 - min(32, max(1, vocab // (k + 2))) * torch.arange(1, k + 2, device=values.device)
    low[:, best[best >= 0]] = -1.0 - values[:, best[best >= 0]].abs()
    return low


def toothed(like: Tensor) -> dict[str, Tensor]:
    """Equals behind a low first of every four, and a slope whose every third and fourth is low.

    A bound that takes another place of four for the largest one's keeps thousands here, for which there is no room.
    """
    place = torch.arange(like.shape[1], device=like.device).expand_as(like)
    slope = place / 1024
    return {
        "comb": torch.where(place % 4 == 0, -1.0, 1.0),
        "slope": torch.where(place % 4 < 2, slope, -100 - slope),
    }


class SelectionTrial(Trial):
    states = ("live", "ties", "equal", "masked", "apart", "comb", "slope", "changed", "restored")
    places = ("live", "ties", "equal", "masked")

    def __init__(self, rows: int, vocab: int, k: int, pad: int, device: str) -> None:
        draw = Draw(rows * 31 + vocab, device)
        live, changed = draw.normal(rows, vocab, scale=3.0), draw.normal(rows, vocab, scale=3.0)
        masked = live.masked_fill(live < live.quantile(0.9) if vocab < 1000 else live < 4.0, float("-inf"))
        self.values = {
            "live": live, "restored": live, "changed": changed, "ties": coarse(live),
            "equal": torch.zeros_like(live), "masked": masked, "apart": apart(live, k),
            **toothed(live),
        }  # fmt: skip
        self.logits, self.k = inside_poison(live, pad), k
        self.problem = problem_of(self.logits, k)

    def set_state(self, state: str) -> None:
        self.logits.copy_(self.values[state])

    def launch(self, schedule: Schedule) -> Candidates:
        return schedule.run(self.logits, self.k)

    def run(self, schedule: Schedule) -> Outputs:
        got = self.launch(schedule)
        return {"values": got.values, "ids": got.ids}

    def expected(self) -> Outputs:
        want = OP.reference(self.logits, self.k)
        return {"ids": want.ids}


MOST_RACED = 2048  # logits


def case(rows: int, vocab: int, k: int, pad: int = 0, device: str = "cpu") -> Case:
    name = f"r{rows}-v{vocab}-k{k}" + (f"-pad{pad}" if pad else "")
    # What has a length here is too long for racecheck, to which a cluster of blocks is a minute's work.
    length = vocab if rows * vocab > MOST_RACED else None
    return Case(name, partial(SelectionTrial, rows, vocab, k, pad), device, length)


CPU = (
    *(case(rows, 1003, 20, pad=5) for rows in (1, 3, 8)),
    case(2, 2, 1),
    case(8, 21, 20),
    case(8, 64, 16),
    case(7, 65, 63),
    case(8, 5000, 64),
    case(2, 62080, 20),
)
CUDA = (
    *(case(8, vocab, 20, device="cuda") for vocab in (1003, 62080, 124160, 248320)),
    case(1, 248320, 20, device="cuda"),
    case(3, 62080, 64, pad=5, device="cuda"),
    case(8, 65, 63, device="cuda"),
    case(2, 62083, 20, device="cuda"),  # the last run ends within a quad
    case(1, 1003, 20, device="cuda"),
)
CASES = CPU + CUDA
SANITIZED = tuple(case for case in CUDA if "v124160" not in case.id)
HAMMERED = (CUDA[0], CUDA[3])

# What one call costs; one head per model, two here so that they alternate: (problem, distinct buffers) by device.
WORKING_SETS = {
    "cpu": ((case(8, 62080, 20), 2),),
    "cuda": ((case(8, 248320, 20, device="cuda"), 8),),
}

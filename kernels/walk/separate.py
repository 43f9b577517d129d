"""The default walk: torch's operations. All possible predecessors are drawn for at once; the walk follows pointers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels import noise
from kernels.registry import Bound, Refusal, Schedule
from kernels.walk.problem import Draws, Problem

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(scores: torch.Tensor, candidates: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """The draw at a position is keyed by the candidate's id, not by its place in the list."""
    import torch  # on first use, so that listing schedules does not load it

    rows = scores.shape[0]
    if draws.greedy:
        choice = scores.argmax(-1)
        law = torch.zeros_like(scores, dtype=torch.float64).scatter_(-1, choice[..., None], 1.0)
    else:
        distance = scores.double() - scores.double().amax(-1, keepdim=True)
        law = torch.softmax(distance / draws.temperature, -1)  # divided last: a temperature near 0 overflows values
        position = (draws.start + 1 + torch.arange(rows, device=scores.device))[:, None]
        choice = (law / noise.exponential(noise.DRAFT, draws.seed, position, candidates)[:, None, :]).argmax(-1)
    place, places = choice.new_zeros(1), []
    for row in range(rows):
        places.append(place)
        place = choice[row].gather(0, place)
    before, chosen = torch.cat(places), torch.cat([*places[1:], place])
    q = law.gather(1, before[:, None, None].expand(-1, 1, law.shape[-1]))[:, 0]
    return candidates.gather(1, chosen[:, None])[:, 0], q


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(rel_l2=1e-12, statement="FP64 softmax and race in the library's order"),
    guard=guard,
    run=run,
    summary="torch: softmax, noise, race, pointers",
)

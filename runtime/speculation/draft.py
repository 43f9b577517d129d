"""Proposing: one drafter forward, the candidate lattice, and the path that the request's noise walks through it.

Per masked row the 16 best candidates by vocabulary score; an edge from each of the 16 candidates of the row before
(the bonus token before the first); softmax of the edge scores at the request's temperature is the law q that each
draft is drawn from. All 16 possible predecessors are drawn for at once, so the walk only follows pointers.
"""

import torch
from torch import Tensor

from kernels.walk import Draws
from runtime.models.drafter import Drafter
from runtime.speculation import noise
from runtime.speculation.acceptance import Proposal
from runtime.speculation.sampling import SamplingParams


def draws_of(params: SamplingParams, seed: Tensor, start: Tensor) -> Draws:
    """`seed` [1] and `start` [1] int64: the request's noise key and the position of the last known token."""
    temperature = torch.full((1,), params.temperature, dtype=torch.float64, device=seed.device)
    return Draws(seed, start, temperature, params.greedy)


def lattice(drafter: Drafter, hidden: Tensor, unary: Tensor, candidates: Tensor, anchor_id: Tensor) -> Tensor:
    """Edge scores [n, K, K] FP32: from candidate j of the row before (row 0: the anchor, any j) to candidate c."""
    before = torch.cat((anchor_id.expand(1, candidates.shape[1]), candidates[:-1]))
    query = drafter.predecessors[before] * drafter.hidden_projection(hidden)[:, None, :]
    return torch.baddbmm(unary[:, None, :], query.float(), drafter.successors[candidates].float().mT)


def walk(scores: Tensor, candidates: Tensor, draws: Draws) -> Proposal:
    """The path through `scores` [n, K, K] for drafts at positions `start + 1`, …; batch of one.

    The draw at a position is keyed by the candidate's id, not by its place in the list.
    """
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
    tokens = candidates.gather(1, chosen[:, None])[:, 0]
    return Proposal(tokens[None], candidates[None], q[None])

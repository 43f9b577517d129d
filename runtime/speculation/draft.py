"""Proposing: one drafter forward, the candidate lattice, and the path that the request's noise walks through it.

Per masked row the 16 best candidates by vocabulary score; an edge from each of the 16 candidates of the row before
(the bonus token before the first); softmax of the edge scores at the request's temperature is the law q that each
draft is drawn from. All 16 possible predecessors are drawn for at once, so the walk only follows pointers.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from kernels.accept.rejection import Proposal
from kernels.walk import Draws, separate
from runtime.models.drafter import Drafter
from runtime.speculation import lookup
from runtime.speculation.sampling import SamplingParams

# By mode: what is verified instead of the drafter's proposal, by the tokens so far. A draft behind which rejection
# sampling is to stay exact says the law that it was drawn from. A second block is of the history alone.
FINISHED: Mapping[str, Callable[..., Proposal]] = {
    "dflash": lambda proposal, tokens, *second_block: proposal,
    "lookup": lookup.augment,
}


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
    """The path through `scores` [n, K, K] for drafts at positions `start + 1`, …; batch of one, by torch."""
    tokens, q = separate.run(scores, candidates, draws)
    return Proposal(tokens[None], candidates[None], q[None])

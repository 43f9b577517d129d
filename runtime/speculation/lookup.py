"""Drafting from the request's own history: what followed the longest earlier occurrence of the current suffix.

A *strong* match (`STRONG` tokens or more) replaces all neural drafts by what followed; each such draft is certain
(q = 1). A *weak* match is used only if the first `AGREE` neural drafts say the same. Those drafts were drawn, so they
keep their own q: calling them certain would accept them too rarely (with q(A) = q(B) = 0.5 and p(A) = 0.8 the output
law must stay 0.8). Whether the tail is replaced depends on no draft behind the agreeing ones, so rejection sampling
stays exact. Only a strong match may add drafts behind the drafter's own, where the caller opens a second block.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernels.accept.rejection import Proposal

STRONG, WEAK, AGREE = 8, 2, 2


def continuation(tokens: Sequence[int], count: int) -> tuple[int, list[int]]:
    """Length of the longest suffix of `tokens` seen before (at most STRONG) and up to `count` tokens that followed it.

    Among occurrences of equal length the latest wins. (0, []) where not even WEAK tokens match.
    """
    best, follow = 0, 0
    last = len(tokens) - 1
    for end in range(last, 0, -1):
        # `end` is where the earlier occurrence's continuation would begin.
        length = 0
        while length < min(STRONG, end) and tokens[end - 1 - length] == tokens[last - length]:
            length += 1
        if length > best:
            best, follow = length, end
        if best == STRONG:
            break
    if best < WEAK:
        return 0, []
    return best, list(tokens[follow : follow + count])


def augment(
    proposal: Proposal, tokens: Sequence[int], most: int = 0, opens: Callable[[bool], bool] = lambda strong: False
) -> Proposal:
    """`proposal` with the drafts that the history of `tokens` overrides; batched over requests of one history.

    Where there may be `most` drafts, more than the drafter's own, `opens` is told once whether the match is strong and
    says whether there will be.
    """
    own = len(proposal)
    length, found = continuation(tokens, max(own, most))
    strong = length >= STRONG
    if most <= own or not opens(strong):
        found = found[:own]
    if not found:
        return proposal
    if len(found) > own:
        proposal = lengthened(proposal, len(found) - own)
    return certain_from(proposal, torch.tensor(found, device=proposal.tokens.device), 0 if strong else AGREE)


def lengthened(proposal: Proposal, more: int) -> Proposal:
    """`proposal` with room for that many `more` drafts, which stand for none yet."""
    parts = ((proposal.tokens, 0), (proposal.ids, -1), (proposal.q, 0))
    return Proposal(*(torch.cat((x, x.new_full((len(x), more, *x.shape[2:]), fill)), 1) for x, fill in parts))


def certain_from(proposal: Proposal, found: Tensor, first: int) -> Proposal:
    """Drafts `first` to `len(found)` become `found`, as point masses, where the drafts before `first` agree with it."""
    rows = slice(first, len(found))
    agree = (proposal.tokens[:, :first] == found[:first]).all(1)[:, None]
    ids, q, drafts = proposal.ids.clone(), proposal.q.clone(), proposal.tokens.clone()
    drafts[:, rows] = torch.where(agree, found[rows], drafts[:, rows])
    point = torch.zeros_like(q[:, rows])
    point[..., 0] = 1.0
    only = torch.full_like(ids[:, rows], -1)
    only[..., 0] = found[rows]
    ids[:, rows] = torch.where(agree[..., None], only, ids[:, rows])
    q[:, rows] = torch.where(agree[..., None], point, q[:, rows])
    return Proposal(drafts, ids, q)

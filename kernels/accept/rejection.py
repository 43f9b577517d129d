"""Rejection sampling of a drafted chain: accepted drafts, then one token, distributed as the target alone would be.

Draft i is accepted while u_i q_i(d_i) < p_i(d_i). The first rejected position draws from relu(p - q) normalised; if
all drafts are accepted, the row behind them draws from p. q must be the law the draft was really drawn from. Every
function takes a leading batch axis S (requests, or seeds in a test). Knows no models.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import noise
from kernels.accept.laws import Distribution


@dataclass(frozen=True)
class Proposal:
    """Drafted `tokens` [S, n] (int64) and, per draft, the law it was drawn from on `ids` [S, n, K] as `q` (FP64).

    Entries of `ids` are distinct within a row; unused places hold id -1 and q 0.
    """

    tokens: Tensor
    ids: Tensor
    q: Tensor

    def __len__(self) -> int:
        return self.tokens.shape[1]


@dataclass(frozen=True)
class Verdict:
    """Per request the number of `accepted` drafts [S] and the `token` [S] that follows them."""

    accepted: Tensor
    token: Tensor


def accept(target: Distribution, proposal: Proposal, seed: Tensor, start: Tensor) -> Verdict:
    """`target` has n + 1 rows [S, n + 1, m]: row i is the law of the token at position `start + 1 + i`.

    `seed` [S] int64; `start` [S] int64 is the position of the last known token, so draft i (from 0) stands at
    `start + 1 + i`.
    """
    accepted = _accepted(target, proposal, seed, start) if len(proposal) else torch.zeros_like(seed)
    ids, weight = _residual(target, proposal, accepted)
    position = (start + 1 + accepted)[:, None]
    return Verdict(accepted, draw(ids, weight, noise.TARGET, seed[:, None], position))


def draw(ids: Tensor, weight: Tensor, stream: int, seed: Tensor, position: Tensor) -> Tensor:
    """One of `ids` [.., m] per row, in proportion to `weight`; seed and position broadcast to [.., 1]."""
    race = weight / noise.exponential(stream, seed, position, ids)
    return ids.gather(-1, race.argmax(-1, keepdim=True)).squeeze(-1)


def probability_of(ids: Tensor, p: Tensor, token: Tensor) -> Tensor:
    """Mass that rows (`ids`, `p`) [.., m] give to `token` [..]."""
    return (p * (ids == token[..., None])).sum(-1)


def residual(ids: Tensor, p: Tensor, draft_ids: Tensor, q: Tensor) -> Tensor:
    """relu(p - q) on the support `ids` [.., m], not normalised; p itself where nothing remains (p = q to rounding)."""
    overlap = (q[..., None, :] * (ids[..., :, None] == draft_ids[..., None, :])).sum(-1)
    rest = (p - overlap).clamp_min(0)
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, p)


def _accepted(target: Distribution, proposal: Proposal, seed: Tensor, start: Tensor) -> Tensor:
    drafted = len(proposal)
    p = probability_of(target.ids[:, :drafted], target.p[:, :drafted], proposal.tokens)
    q = probability_of(proposal.ids, proposal.q, proposal.tokens)
    position = start[:, None] + 1 + torch.arange(drafted, device=start.device)
    passed = noise.uniform(noise.ACCEPT, seed[:, None], position) * q < p
    return passed.long().cumprod(-1).sum(-1)


def _residual(target: Distribution, proposal: Proposal, accepted: Tensor) -> tuple[Tensor, Tensor]:
    """Support [S, m] and weights of the token behind the accepted drafts."""
    row = accepted[:, None, None]
    ids, p = (x.gather(1, row.expand(-1, 1, x.shape[-1]))[:, 0] for x in (target.ids, target.p))
    if not len(proposal):
        return ids, p
    last = row.clamp_max(len(proposal) - 1).expand(-1, 1, proposal.ids.shape[-1])
    draft_ids, q = proposal.ids.gather(1, last)[:, 0], proposal.q.gather(1, last)[:, 0]
    q = q * (accepted < len(proposal))[:, None]
    return ids, residual(ids, p, draft_ids, q)

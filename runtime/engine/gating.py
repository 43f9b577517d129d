"""What a grammar says of one round: which drafts are worth verifying, and which tokens each row may give.

The host waits for the drafts here; a request without a grammar never comes here.
"""

from torch import Tensor

from kernels.accept.rejection import Proposal
from runtime.engine.sequence import TokenGate


def gated(proposal: Proposal, gate: TokenGate) -> Proposal:
    """The drafts up to and including the first that the grammar forbids: it is rejected for certain, by the usual rule,
    and nothing behind it can count."""
    drafts = proposal.tokens[0].tolist()
    mask = gate.allowed(drafts)
    keep = next((i for i, draft in enumerate(drafts) if not mask[i, draft]), len(drafts)) + 1
    return Proposal(proposal.tokens[:, :keep], proposal.ids[:, :keep], proposal.q[:, :keep])


def allowed(gate: TokenGate, proposal: Proposal | None) -> Tensor:
    return gate.allowed(proposal.tokens[0].tolist() if proposal is not None else [])

"""The default verdict: torch's operations, `laws` and `rejection` for one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.accept.problem import Best, Chain, Problem, Rule
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch

    from kernels.accept.laws import Distribution


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(best: Best, chain: Chain, bonus: torch.Tensor, rule: Rule) -> torch.Tensor:
    from kernels.accept.laws import shortlisted  # on first use, so that listing schedules does not load torch

    support = best.ids.shape[-1]
    law = shortlisted(best.values, best.ids, rule, support if rule.complete else support + 1)
    return judge(best.largest, law, chain, bonus)


def judge(largest: torch.Tensor, law: Distribution, chain: Chain, bonus: torch.Tensor) -> torch.Tensor:
    """`packed` from the law of each row and the `largest` logit of its vocabulary."""
    import torch  # on first use, as above

    from kernels.accept.laws import Distribution
    from kernels.accept.rejection import Proposal, accept

    _, start, seed = bonus.split(1)
    of_one = Distribution(law.ids[None], law.p[None], law.cut_tie)
    verdict = accept(of_one, Proposal(*(part[None] for part in chain)), seed, start)
    flags = torch.stack((broken(largest), law.cut_tie)).long()
    return torch.cat((flags, verdict.accepted, verdict.token, chain.tokens))


def broken(largest: torch.Tensor) -> torch.Tensor:
    """Scalar flag, on the device: some row holds a NaN, the largest of all, or no token above -inf."""
    return (~(largest > float("-inf"))).any()


SCHEDULE = Schedule(
    name="separate",
    revision=1,
    contract=Bound(rel_l2=0.0, statement="laws in FP64 in the library's order"),
    guard=guard,
    run=run,
    summary="torch: laws, tests, residual, race",
)

"""The small steps of a round, through their operators: the drafter's walk, the verdict, and what follows from it.

Each is a handful of numbers that torch's operations need dozens of launches for, which is what its default does: the
laws and tests are `runtime.speculation`'s. Knows no models.
"""

from __future__ import annotations

from torch import Tensor

from kernels import accept, commit, walk
from kernels.selection import Candidates
from runtime.engine.outcome import pack
from runtime.operators import Operators
from runtime.speculation import acceptance, draft
from runtime.speculation.acceptance import Proposal
from runtime.speculation.sampling import Distribution, SamplingParams, shortlisted


def propose(operators: Operators, scores: Tensor, candidates: Tensor, draws: walk.Draws) -> Proposal:
    """The path through `scores` [n, K, K] for drafts at positions `start + 1`, …"""
    problem = walk.problem_of(scores, candidates, draws)
    tokens, q = operators.run("walk", walk.OP, problem, scores, candidates, draws, _walked)
    return Proposal(tokens[None], candidates[None], q[None])


def judge(
    operators: Operators, best: Candidates, largest: Tensor, proposal: Proposal, bonus: Tensor, rule: accept.Rule
) -> Tensor:
    """The packed outcome of one request from each row's best logits and the `largest` [R] of its vocabulary."""
    rows, chain = accept.Best(*best, largest), accept.Chain(proposal.tokens[0], proposal.ids[0], proposal.q[0])
    problem = accept.problem_of(rows, chain, rule)
    return operators.run("accept", accept.OP, problem, rows, chain, bonus, rule, _judged)


def judge_law(largest: Tensor, law: Distribution, proposal: Proposal, bonus: Tensor) -> Tensor:
    """The same from the law of each row."""
    _, start, seed = bonus.split(1)
    verdict = acceptance.accept(Distribution(law.ids[None], law.p[None], law.cut_tie), proposal, seed, start)
    return pack(broken(largest), law.cut_tie, verdict, proposal.tokens[0])


def follow(
    operators: Operators, packed: Tensor, bonus: Tensor, selector: Tensor, window: commit.Window | None
) -> Tensor:
    """The next bonus; `selector` and `window` are written. An outcome that does not hold changes nothing."""
    problem = commit.problem_of(packed, window)
    return operators.run("commit", commit.OP, problem, packed, bonus, selector, window)


def broken(largest: Tensor) -> Tensor:
    """Scalar flag, on the device: some row holds a NaN, the largest of all, or no token above -inf."""
    return (~(largest > float("-inf"))).any()


def rule_of(params: SamplingParams, complete: bool) -> accept.Rule:
    return accept.Rule(params.temperature, params.top_k, params.top_p, params.min_p, complete)


def _walked(scores: Tensor, candidates: Tensor, draws: walk.Draws) -> tuple[Tensor, Tensor]:
    proposal = draft.walk(scores, candidates, draws)
    return proposal.tokens[0], proposal.q[0]


def _judged(best: accept.Best, chain: accept.Chain, bonus: Tensor, rule: accept.Rule) -> Tensor:
    params = SamplingParams(rule.temperature, rule.top_k, rule.top_p, rule.min_p)
    law = shortlisted(best.values, best.ids, params, best.ids.shape[-1] if rule.complete else -1)
    proposal = Proposal(*(part[None] for part in chain))
    return judge_law(best.largest, law, proposal, bonus)

"""The small steps of a round, through their operators: the drafter's walk, the verdict, and what follows from it.

Each is a handful of numbers that torch's operations need dozens of launches for. Knows no models.
"""

from __future__ import annotations

from torch import Tensor

from kernels import accept, commit, walk
from kernels.accept import separate
from kernels.accept.laws import Distribution
from kernels.accept.rejection import Proposal
from kernels.selection import Candidates
from runtime.operators import Operators
from runtime.speculation.sampling import SamplingParams


def propose(operators: Operators, scores: Tensor, candidates: Tensor, draws: walk.Draws) -> Proposal:
    """The path through `scores` [n, K, K] for drafts at positions `start + 1`, …"""
    problem = walk.problem_of(scores, candidates, draws)
    tokens, q = operators.run("walk", walk.OP, problem, scores, candidates, draws)
    return Proposal(tokens[None], candidates[None], q[None])


def judge(
    operators: Operators, best: Candidates, largest: Tensor, proposal: Proposal, bonus: Tensor, rule: accept.Rule
) -> Tensor:
    """The packed outcome of one request from each row's best logits and the `largest` [R] of its vocabulary."""
    rows, chain = accept.Best(*best, largest), _chain(proposal)
    problem = accept.problem_of(rows, chain, rule)
    return operators.run("accept", accept.OP, problem, rows, chain, bonus, rule)


def judge_law(largest: Tensor, law: Distribution, proposal: Proposal, bonus: Tensor) -> Tensor:
    """The same from the law of each row."""
    return separate.judge(largest, law, _chain(proposal), bonus)


def follow(
    operators: Operators, packed: Tensor, bonus: Tensor, selector: Tensor, window: commit.Window | None
) -> Tensor:
    """The next bonus; `selector` and `window` are written. An outcome that does not hold changes nothing."""
    problem = commit.problem_of(packed, window)
    return operators.run("commit", commit.OP, problem, packed, bonus, selector, window)


def rule_of(params: SamplingParams, complete: bool) -> accept.Rule:
    return accept.Rule(params.temperature, params.top_k, params.top_p, params.min_p, complete)


def _chain(proposal: Proposal) -> accept.Chain:
    return accept.Chain(proposal.tokens[0], proposal.ids[0], proposal.q[0])

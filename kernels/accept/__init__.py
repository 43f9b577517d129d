"""Rejection sampling of one drafted chain: from the best logits of every row to the accepted drafts and a token.

`run(best, chain, bonus [3] int64, rule) -> packed [4 + n] int64`: whether the logits were broken, whether a
tie at the top-k was cut, how many drafts were accepted, the token behind them, the drafts.
"""

from __future__ import annotations

from kernels.accept import native, reference, separate
from kernels.accept.problem import Best, Chain, Problem, Rule, problem_of
from kernels.registry import Op

__all__ = ["OP", "Best", "Chain", "Problem", "Rule", "problem_of"]

OP = Op(
    name="accept",
    reference=reference.judge,
    schedules=(separate.SCHEDULE, *native.SCHEDULES),
    default="separate",
)

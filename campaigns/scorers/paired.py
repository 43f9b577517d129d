"""Scores of two arms on the same answers to compare: discordant pairs and McNemar's exact test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from campaigns.judging.statistics import sign_test_p
from campaigns.plan import PairKey, Role
from campaigns.remarks import Score
from campaigns.scorers.verdict import Judged


@dataclass(frozen=True)
class Discordance:
    """Pairs of which both sides are scored; a side passes or it does not, whatever else was said of it."""

    n_pairs: int
    only_control: int
    only_candidate: int
    both: int = 0  # pairs that both sides pass

    @property
    def p(self) -> float:
        return mcnemar_exact_p(self.only_control, self.only_candidate)


def newest(scores: Iterable[Score]) -> dict[tuple[str, PairKey, Role], Score]:
    """The last verdict of each scorer on each answer; `scores` come in the order in which they were added."""
    return {(score.scorer, score.key, score.role): score for score in scores}


def discordance(scores: Iterable[Score], scorer: str) -> Discordance:
    """Pairs on which the arms' newest verdicts differ; a pair outside the denominator is not one."""
    sides: dict[PairKey, dict[Role, bool]] = {}
    for (name, key, role), score in newest(scores).items():
        if name == scorer and score.outcome != Judged.INELIGIBLE:
            sides.setdefault(key, {})[role] = score.outcome == Judged.PASSED
    both = [(side[Role.CONTROL], side[Role.CANDIDATE]) for side in sides.values() if len(side) == 2]
    return Discordance(len(both), both.count((True, False)), both.count((False, True)), both.count((True, True)))


def mcnemar_exact_p(only_control: int, only_candidate: int) -> float:
    """Two-sided: how likely a fair coin splits the discordant pairs at least as unevenly. 1 without any."""
    p = sign_test_p(only_control, only_control + only_candidate)
    return 1.0 if p is None else p

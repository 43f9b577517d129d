"""Discordant pairs and McNemar's exact p."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from campaigns.plan import PairKey, Role
from campaigns.remarks import Score
from campaigns.scorers.paired import discordance, mcnemar_exact_p, newest


def score(case: int, role: Role, outcome: str, scorer: str = "gsm8k") -> Score:
    return Score("c", PairKey(0, f"gsm8k/{case}", 0, 0), role, "2026-01-01", scorer, "1", "{}", outcome, "{}")


@pytest.mark.parametrize(("b", "c"), [(1, 0), (0, 5), (3, 3), (10, 2), (0, 20), (7, 8)])
def test_mcnemar_is_the_binomial_test_of_the_discordant_pairs(b: int, c: int) -> None:
    assert mcnemar_exact_p(b, c) == pytest.approx(binomtest(b, b + c).pvalue)


def test_without_discordant_pairs_there_is_nothing_to_see() -> None:
    assert mcnemar_exact_p(0, 0) == 1.0


def test_discordance_counts_whole_pairs_by_their_newest_verdict() -> None:
    outcomes = [
        ("passed", "passed"),
        ("passed", "failed"),
        ("capped", "passed"),
        ("timeout", "passed"),
        ("error", "failed"),
    ]
    scores = [
        score(n, role, outcome)
        for n, both in enumerate(outcomes)
        for role, outcome in zip((Role.CONTROL, Role.CANDIDATE), both, strict=True)
    ]
    scores += [
        score(7, Role.CONTROL, "passed"),
        score(8, Role.CONTROL, "ineligible"),
        score(8, Role.CANDIDATE, "passed"),
    ]
    scores += [score(0, Role.CANDIDATE, "failed", scorer="other")]
    found = discordance(scores, "gsm8k")
    assert (found.n_pairs, found.only_control, found.only_candidate) == (5, 1, 2)
    assert found.p == 1.0
    again = [*scores, score(1, Role.CANDIDATE, "passed")]
    assert discordance(again, "gsm8k").only_control == 0 and len(newest(again)) == len(scores)

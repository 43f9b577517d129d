"""The search for a commit: at most log2 probes, broken ones stepped over, an answer that holds the truth."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from campaigns.design.bisection import Bracket, beyond_half, bracket, most_probes, probe
from campaigns.judging.statistics import Interval
from campaigns.judging.verdicts import Evidence, Judgement, Verdict


def searched(n: int, changed: int, broken: frozenset[int] = frozenset()) -> tuple[Bracket, int, int]:
    """What is found, by how many probes, and how many were stepped over."""
    known: dict[int, bool | None] = {}
    while (number := probe(n, known)) is not None:
        assert 0 < number < n - 1 and number not in known
        known[number] = None if number in broken else number >= changed
    return bracket(n, known), sum(v is not None for v in known.values()), sum(v is None for v in known.values())


def test_every_commit_of_every_short_line_is_found_within_log2() -> None:
    for n in range(2, 70):
        for changed in range(1, n):
            found, probes, _ = searched(n, changed)
            assert found == Bracket(changed - 1, changed) and probes <= most_probes(n), (n, changed)
    assert [most_probes(n) for n in (2, 3, 4, 5, 6, 1025)] == [0, 1, 2, 2, 3, 10]


def test_broken_commits_are_stepped_over_and_the_answer_still_holds_the_truth() -> None:
    draws = random.Random(3)
    for _ in range(2000):
        n = draws.randint(3, 60)
        changed = draws.randint(1, n - 1)
        broken = frozenset(number for number in range(1, n - 1) if draws.random() < 0.3)
        found, _, _ = searched(n, changed, broken)
        assert found.before < changed <= found.after
        assert set(range(found.before + 1, found.after)) <= broken  # nothing that could be judged is left


def test_a_long_run_of_broken_commits_is_left_by_strides() -> None:
    found, _, skipped = searched(1001, 900, frozenset(range(400, 600)))
    assert found == Bracket(899, 900) and skipped < 20  # one by one it would be a hundred


def judged(low: float, high: float, effect: float, verdict: Verdict) -> Judgement:
    interval = Interval(low, high, 0.95, "t")
    return replace(
        Judgement(Evidence.SUPPORTED, verdict, "", 4, dict.fromkeys(range(5), effect), {}),
        effect=effect,
        interval=interval,
    )


@pytest.mark.parametrize(
    ("low", "high", "effect", "verdict", "expected"),
    [
        (0.08, 0.12, 0.10, Verdict.SLOWER, True),
        (-0.01, 0.01, 0.00, Verdict.EQUIVALENT, False),
        (-0.01, 0.04, 0.01, Verdict.INCONCLUSIVE, False),  # whatever it is, less than half
        (0.01, 0.19, 0.10, Verdict.SLOWER, True),  # decided, its interval holds the half
        (0.01, 0.06, 0.03, Verdict.SLOWER, False),  # another, smaller change
        (-0.02, 0.10, 0.04, Verdict.INCONCLUSIVE, None),
        (-0.12, -0.08, -0.10, Verdict.FASTER, False),
    ],
)
def test_a_revision_has_the_change_beyond_half_of_it(
    low: float, high: float, effect: float, verdict: Verdict, expected: bool | None
) -> None:
    assert beyond_half(judged(low, high, effect, verdict), 0.10) is expected
    flipped = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}.get(verdict, verdict)
    assert beyond_half(judged(-high, -low, -effect, flipped), -0.10) is expected  # a change for the better

"""Successive halving keeps the faster half, and its winner's own figure is not to be believed."""

from __future__ import annotations

import numpy as np
import pytest

from campaigns.design.halving import Entrant, rounds, survivors


def test_the_faster_half_stays_in_its_own_order() -> None:
    entrants = [Entrant("a", 0.1), Entrant("b", -0.2), Entrant("c", -0.1), Entrant("d", 0.0), Entrant("e", -0.05)]
    assert survivors(entrants) == ("b", "c", "e")
    assert survivors([Entrant("a", -0.5, "not exact"), Entrant("b", 0.1), Entrant("c", None)]) == ("b",)
    assert survivors([Entrant("a", 0.0), Entrant("b", 0.0)]) == ("a",)
    assert survivors([Entrant("a", None)]) == ()


@pytest.mark.parametrize(
    ("n", "stages"), [(1, ()), (2, ((2, 2),)), (8, ((8, 2), (4, 4), (2, 8))), (5, ((5, 2), (3, 4), (2, 8)))]
)
def test_every_round_costs_about_the_same(n: int, stages: tuple[tuple[int, int], ...]) -> None:
    assert rounds(n, 2) == stages


def test_the_best_of_many_equals_looks_faster_and_its_confirmation_does_not() -> None:
    """A world in which no arm differs from the control: the race's own figure is biased, new startups are not."""
    draws = np.random.default_rng(5)
    raced, confirmed = [], []
    for _ in range(400):
        left, each = [str(n) for n in range(16)], 2
        while len(left) > 1:
            found = [Entrant(name, float(draws.normal(0, 0.01 / each**0.5))) for name in left]
            left, each = list(survivors(found)), 2 * each
        raced.append(min(entrant.effect or 0.0 for entrant in found))
        confirmed.append(float(draws.normal(0, 0.01 / 3**0.5)))
    assert np.mean(raced) < -0.001  # a tenth of a per cent out of nothing
    assert abs(np.mean(confirmed)) < 0.001


def test_a_truly_faster_arm_is_found() -> None:
    draws = np.random.default_rng(6)
    won = 0
    for _ in range(200):
        left, each = [str(n) for n in range(8)], 2
        while len(left) > 1:
            shifts = {name: -0.02 if name == "5" else 0.0 for name in left}
            found = [Entrant(name, float(draws.normal(shifts[name], 0.01 / each**0.5))) for name in left]
            left, each = list(survivors(found)), 2 * each
        won += left == ["5"]
    assert won > 180

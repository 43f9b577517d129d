"""Variance components against published ones, and against worlds whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from campaigns.judging.components import component

# Davies & Goldsmith (1972), yield of dyestuff from six batches; lme4 gives 42.00 between batches and 49.51 within.
DYESTUFF = {
    "A": (1545, 1440, 1440, 1520, 1580),
    "B": (1540, 1555, 1490, 1560, 1495),
    "C": (1595, 1550, 1605, 1510, 1560),
    "D": (1445, 1440, 1595, 1465, 1545),
    "E": (1595, 1630, 1515, 1635, 1625),
    "F": (1520, 1455, 1450, 1480, 1445),
}


def test_dyestuff_as_lme4_has_it() -> None:
    rows = [(batch, value) for batch, values in DYESTUFF.items() for value in values]
    found = component({i: v for i, (_, v) in enumerate(rows)}, {i: b for i, (b, _) in enumerate(rows)})
    assert found is not None and (found.n_groups, found.n) == (6, 30)
    assert (round(found.between, 2), round(found.within, 2)) == (42.0, 49.51)
    assert found.p == pytest.approx(0.0044, abs=5e-5)


def test_what_cannot_be_told_is_not() -> None:
    assert component({0: 1.0, 1: 2.0}, {0: "a", 1: "b"}) is None
    assert component({0: 1.0, 1: 2.0}, {0: "a", 1: "a"}) is None
    assert component({}, {}) is None
    equal = component(dict.fromkeys(range(4), 1.0), {0: "a", 1: "a", 2: "b", 3: "b"})
    assert equal is not None and (equal.between, equal.within, equal.p) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("true_between", [0.0, 0.02])
def test_the_truth_is_met_on_average_and_the_test_keeps_its_level(true_between: float) -> None:
    """Unbalanced, as startups fall on devices; variances, since their estimator is unbiased but for the cut at 0."""
    draws = np.random.default_rng(3)
    found = []
    for _ in range(400):
        group_of = {i: str(g) for i, g in enumerate(draws.integers(0, 5, 24))}
        shift = {g: draws.normal(0, true_between) for g in map(str, range(5))}
        found.append(component({i: shift[g] + draws.normal(0, 0.01) for i, g in group_of.items()}, group_of))
    told = [each for each in found if each is not None]
    rejected = np.mean([each.p < 0.05 for each in told])
    assert np.sqrt(np.mean([each.within**2 for each in told])) == pytest.approx(0.01, rel=0.05)
    if true_between:
        assert np.sqrt(np.mean([each.between**2 for each in told])) == pytest.approx(true_between, rel=0.1)
        assert rejected > 0.9
    else:
        assert 0.02 < rejected < 0.09

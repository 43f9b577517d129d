"""Startups and pairs for a wanted precision: the estimators, and that the promised half width comes true."""

import numpy as np
import pytest

from campaigns.judging.planning import (
    MAX_PAIRS,
    Variances,
    half_width,
    needed_startups,
    optimal_pairs,
    propose,
    variances,
)
from campaigns.judging.statistics import by_startup
from campaigns.simulate import Model, by_t


def test_between_variance_leaves_out_what_pairs_explain():
    rng = np.random.default_rng(2)
    found = variances(by_startup(Model(4000, 6, between=0.003, within=0.005).campaign(rng)))
    assert found.within == pytest.approx(0.005**2, rel=0.03)
    assert found.between == pytest.approx(0.003**2, rel=0.08)  # without the correction: + 0.005²/6, half as much again
    none = variances(by_startup(Model(4000, 6, between=0.0, within=0.005).campaign(rng)))
    assert none.between < 0.0005**2 * 4


@pytest.mark.parametrize("deltas", [{}, {0: [0.1, 0.2]}, {0: [0.1], 1: [0.2]}])
def test_too_little_says_nothing(deltas):
    assert variances(deltas) is None


def test_optimal_pairs_by_hand():
    found = Variances(within=16e-6, between=1e-6, pairs=6)
    assert optimal_pairs(found, startup_s=100, pair_s=25) == 8  # sqrt(4 · 16)
    assert optimal_pairs(found, startup_s=1, pair_s=100) == 2  # never fewer
    assert optimal_pairs(Variances(1e-6, 0.0, 6), 100, 1) == MAX_PAIRS


def test_startups_are_the_fewest_that_do():
    found = Variances(within=25e-6, between=9e-6, pairs=6)
    needed = needed_startups(found, 6, 0.005)
    assert half_width(found, needed, 6) <= 0.005 < half_width(found, needed - 1, 6)
    assert needed_startups(found, 6, 1e-6) is None


def test_the_proposal_keeps_its_promise():
    found = Variances(within=0.005**2, between=0.003**2, pairs=6)
    plan = propose(found, startup_s=60, pair_s=10, wanted=0.004)
    assert plan.half_width <= 0.004 and plan.pairs % 2 == 0
    assert plan.hours == pytest.approx(plan.startups * (60 + 10 * plan.pairs) / 3600)
    rng = np.random.default_rng(1)
    model = Model(plan.startups, plan.pairs, between=0.003, within=0.005)
    # medians of pairs vary more than means by a quarter at most
    assert np.mean([by_t(model.campaign(rng)).half_width for _ in range(300)]) < 1.3 * plan.half_width

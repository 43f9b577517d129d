"""Startups and pairs for a wanted precision: the estimators, and that the promised half width comes true."""

import numpy as np
import pytest

from campaigns.design.planning import (
    MAX_PAIRS,
    Variances,
    assured_half_width,
    assured_sd,
    ending,
    half_width,
    median_share,
    needed_startups,
    optimal_pairs,
    propose,
    variances,
)
from campaigns.judging.looks import Looks
from campaigns.judging.statistics import by_startup
from campaigns.simulate.judged import ended
from campaigns.simulate.promises import plan_met
from campaigns.simulate.worlds import Model


def test_between_variance_leaves_out_what_pairs_explain():
    rng = np.random.default_rng(2)
    found = variances(by_startup(Model(4000, 6, between=0.003, within=0.005).campaign(rng)))
    assert found.within == pytest.approx(0.005**2, rel=0.03)
    assert found.between == pytest.approx(0.003**2, rel=0.08)
    none = variances(by_startup(Model(4000, 6, between=0.0, within=0.005).campaign(rng)))
    assert none.between < 0.0005**2 * 4


@pytest.mark.parametrize("pairs", [1, 2, 4, 6, 8, 20])
def test_the_variance_of_a_median_is_that_of_many(pairs):
    many = np.median(np.random.default_rng(0).standard_normal((200_000, pairs)), axis=1)
    assert median_share(pairs) == pytest.approx(many.var(), rel=0.03)


@pytest.mark.parametrize("deltas", [{}, {0: [0.1, 0.2]}, {0: [0.1], 1: [0.2]}])
def test_too_little_says_nothing(deltas):
    assert variances(deltas) is None


def known(within, between, pairs=6, startups=10):
    return Variances(within, between + within * median_share(pairs), pairs, startups)


def test_optimal_pairs_by_hand():
    assert optimal_pairs(known(16e-6, 1e-6), startup_s=100, pair_s=25) == 8  # sqrt(4 · 16)
    assert optimal_pairs(known(16e-6, 1e-6), startup_s=1, pair_s=100) == 2  # never fewer
    assert optimal_pairs(Variances(1e-6, 0.0, 6, 10), 100, 1) == MAX_PAIRS


def test_startups_are_the_fewest_that_are_assured():
    found = known(25e-6, 9e-6)
    needed = needed_startups(found, 6, 0.005)
    assert assured_half_width(found, needed, 6) <= 0.005 < assured_half_width(found, needed - 1, 6)
    assert half_width(found, needed, 6) < assured_half_width(found, needed, 6)
    assert needed_startups(found, 6, 1e-6) is None


def test_more_pairs_make_a_startup_more_certain_and_never_more_than_startups_allow():
    found = known(25e-6, 9e-6)
    assert [round(found.at(k)[0] * 1e6, 2) for k in (6, 2, 30)] == [14.38, 21.5, 10.25]
    lucky = Variances(25e-6, 1e-7, 6, 3)  # a pilot whose startups agree by chance
    assert lucky.at(8)[0] >= 25e-6 * median_share(8)


def test_the_cheapest_plan_is_proposed():
    plan = propose(known(0.005**2, 0.003**2), startup_s=60, pair_s=10, wanted=0.004)
    assert plan.expected < plan.assured <= 0.004 and plan.pairs % 2 == 0
    assert plan.hours == pytest.approx(plan.startups * (60 + 10 * plan.pairs) / 3600)


@pytest.mark.parametrize("startups", [3, 5])
def test_four_of_five_planned_campaigns_meet_their_half_width(startups):
    met, _ = plan_met(Model(startups), 0.005, 250, 6)
    assert met >= 0.8 - 0.05  # two standard errors


@pytest.mark.parametrize("truth", [0.0, 0.005, 0.01])
def test_the_expected_number_of_startups_is_that_of_campaigns_that_were_drawn(truth):
    model, looks = Model(12, truth=truth), Looks(3, 12)
    sd = float(np.median(Model(12).draw(np.random.default_rng(0), 2000), -1).std())
    promised, drawn = ending(truth, sd, looks, 0.005), ended(model, looks, 1000, 3)
    assert promised.expected == pytest.approx(drawn.startups.mean(), abs=0.35)
    assert promised.share_told == pytest.approx(drawn.told.differ, abs=0.05)


def test_four_of_five_hosts_spread_by_less_than_is_assured():
    shown = np.random.default_rng(1).standard_normal((4000, 5)).std(1, ddof=1)
    assert np.mean([assured_sd(sd, 5) >= 1 for sd in shown]) == pytest.approx(0.8, abs=0.02)

"""The method keeps its promises: the quick form of the tables in docs/statistics.md."""

import numpy as np
import pytest

from campaigns.judging import decision
from campaigns.judging.rules import judge_campaign
from campaigns.judging.verdicts import Sample, Setting
from campaigns.plan import Order
from campaigns.simulate import tables
from campaigns.simulate.__main__ import main
from campaigns.simulate.judged import judged, seen, told
from campaigns.simulate.promises import coverage, drift_bias, predicted_power
from campaigns.simulate.worlds import AR1, NORMAL, ONE_IN_FIVE, TWO_VALUED, Model, pair_effects

_WORDS = ("inconclusive", "faster", "slower", "equivalent", "order-sensitive", "below-resolution")


@pytest.mark.parametrize("fixtures", [1, 3])
@pytest.mark.parametrize(("truth", "order"), [(0.0, 0.0), (-0.01, 0.01), (0.004, 0.0), ((0.02, -0.01, -0.01), 0.0)])
def test_thousands_are_judged_as_one_is(fixtures, truth, order):
    if fixtures == 1 and isinstance(truth, tuple):
        truth = truth[0]
    model = Model(4, fixtures=fixtures, truth=truth, order=order)
    deltas = model.draw(np.random.default_rng(3), 40)
    many = judged(seen(deltas, model.control_first))
    for i, campaign in enumerate(deltas):
        pairs = {str(f): pair_effects(rows, model.control_first) for f, rows in enumerate(campaign)}
        one = judge_campaign({name: Sample(p, len(p)) for name, p in pairs.items()}, Setting(margin=np.expm1(0.005)))
        assert one.campaign.verdict == _WORDS[many.campaign[i]]
        assert [each.verdict for each in one.fixtures.values()] == [_WORDS[word] for word in many.fixtures[i]]


@pytest.mark.parametrize("noise", [NORMAL, AR1])
@pytest.mark.parametrize(("startups", "fixtures"), [(3, 1), (3, 12), (5, 4), (8, 2), (16, 1)])
def test_equal_arms_are_told_to_differ_in_five_percent(startups, fixtures, noise):
    found = told(Model(startups, fixtures=fixtures, noise=noise), 4000, 11)
    assert max(found.differ, found.exit_2) <= 0.05 + 3 * 0.0034  # three standard errors of 4000


@pytest.mark.parametrize("order", [0.0, 0.005, -0.01, 0.02])
def test_a_regression_is_told_whatever_the_order_does(order):
    assert told(Model(5, truth=0.05, order=order), 2000, 1).slower >= 0.95


def test_more_fixtures_and_more_startups_find_more():
    found = [[told(Model(s, fixtures=f, truth=-0.005), 2000, 2).faster for f in (1, 4, 12)] for s in (3, 5, 8)]
    assert (np.diff(found, axis=0) > 0).all() and (np.diff(found, axis=1) > 0).all()


def test_measuring_an_aa_campaign_takes_less_power_than_false_alarms():
    for startups in (3, 8):
        aa, ab = Model(startups, between=0.005), Model(startups, between=0.005, truth=0.01)
        false = [told(aa, 600, 4, past=past).differ for past in (0, 10)]
        power = [told(ab, 600, 4, past=past).slower for past in (0, 10)]
        assert false[1] / false[0] < power[1] / power[0] < 1.02


@pytest.mark.parametrize("shape", [TWO_VALUED, ONE_IN_FIVE])
def test_bands_that_are_known_are_no_effect(shape):
    model = Model(3, between=0.005, within=0.003, shape=shape)
    assert told(model, 1000, 5).differ > 0.1  # what three startups alone cannot know
    assert told(model, 1000, 5, past=12).differ < 0.02


@pytest.mark.parametrize("startups", [3, 5, 8])
def test_the_t_interval_covers_and_pooled_pairs_do_not(startups):
    by_t, bootstrap, pooled = coverage(Model(startups, between=0.005, within=0.003), 500, 7)
    assert abs(by_t - 0.95) <= 0.03 and pooled < 0.8
    assert np.isnan(bootstrap) if startups < 5 else abs(bootstrap - 0.95) <= 0.04


@pytest.mark.parametrize(("startups", "between"), [(3, 0.003), (5, 0.005)])
def test_one_percent_is_found_at_the_predicted_power(startups, between):
    model = Model(startups, 6, between, within=0.003, truth=0.01)
    predicted = predicted_power(model)
    assert 0.3 < predicted < 0.99
    assert predicted - 0.12 < told(model, 2000, 3).slower < predicted + 0.05  # the noise floor is a second bar


def test_a_linear_drift_cancels_in_abba_and_not_elsewhere():
    assert drift_bias(Order.ABBA, 6) < 0.0005
    assert drift_bias(Order.ABBA, 5) == pytest.approx(0.0009, abs=5e-5)
    assert drift_bias("abab", 6) == pytest.approx(0.0009, abs=5e-5)
    assert drift_bias(Order.BLOCKED, 6) == pytest.approx(0.0055, abs=5e-5)


@pytest.mark.acceptance
def test_the_command_prints_every_table(monkeypatch, capsys):
    cheap = [table for table in tables._TABLES if "earlier" not in table[1] and "bootstrap" not in table[1]]
    monkeypatch.setattr(tables, "_TABLES", [table for table in cheap if "A/A startups" not in table[0]])
    monkeypatch.setattr("sys.argv", ["simulate", "--campaigns", "2"])
    main()
    out = capsys.readouterr().out
    assert out.count("###") == len(tables._TABLES) >= 7 and "| abba | 5 | 0.09 % |" in out
    assert _WORDS.index("slower") == decision.SLOWER

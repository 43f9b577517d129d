"""The method keeps its promises: the quick form of the tables in docs/statistics.md."""

import math

import pytest

from campaigns.plan import Order
from campaigns.simulate import (
    TWO_VALUED,
    Model,
    by_pooling,
    by_t,
    coverage,
    drift_bias,
    found,
    main,
    power,
    predicted_power,
    verdicts,
    wrong,
)


@pytest.mark.parametrize("startups", [3, 5, 8])
def test_equal_arms_are_told_to_differ_in_at_most_seven_percent(startups):
    counts = verdicts(Model(startups, 6, between=0.003, within=0.005), 1000, seed=11)
    assert counts.total() == 1000
    assert wrong(counts) <= 0.07, counts


@pytest.mark.parametrize("startups", [3, 5, 8])
def test_the_t_interval_covers_within_three_points(startups):
    share, _ = coverage(Model(startups, 6, between=0.003, within=0.005), 2000, 7, by_t)
    assert abs(share - 0.95) <= 0.03


def test_pooled_pairs_would_not_cover():
    share, _ = coverage(Model(3, 6, between=0.005, within=0.003), 500, 7, by_pooling)
    assert share < 0.8  # the reason why a startup is the unit


def test_two_valued_startup_effects_are_beyond_three_startups():
    share, _ = coverage(Model(3, 6, between=0.005, within=0.001, shape=TWO_VALUED), 1000, 7, by_t)
    assert 0.7 < share < 0.83


@pytest.mark.parametrize(("startups", "between"), [(3, 0.003), (5, 0.005)])
def test_one_percent_is_found_at_the_predicted_power(startups, between):
    model = Model(startups, 6, between, within=0.003, truth=math.log(1.01))
    predicted = predicted_power(model)
    assert 0.3 < predicted < 0.99
    assert power(model, 1000, seed=3) == pytest.approx(predicted, abs=0.05)
    assert found(verdicts(model, 500, seed=3)) > predicted - 0.12  # the noise floor is a second bar


def test_a_linear_drift_cancels_in_abba_and_not_elsewhere():
    assert drift_bias(Order.ABBA, 6) < 0.0005
    assert drift_bias(Order.ABBA, 5) == pytest.approx(0.0009, abs=5e-5)
    assert drift_bias("abab", 6) == pytest.approx(0.0009, abs=5e-5)
    assert drift_bias(Order.BLOCKED, 6) == pytest.approx(0.0055, abs=5e-5)


def test_the_command_prints_every_table(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["simulate", "--campaigns", "2"])
    main()
    out = capsys.readouterr().out
    assert out.count("###") == 4 and "| abba | 5 | 0.09 % |" in out

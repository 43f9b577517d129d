"""Effects, intervals, tests and floors against values worked out by hand or by scipy itself."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.judging.quantiles import Confidence, interval, median_quantile, quantile
from campaigns.judging.statistics import (
    Interval,
    PairEffect,
    bootstrap_statistics,
    by_startup,
    holm,
    mismatch_bound,
    nested_bootstrap,
    noise_floor,
    order_contrast,
    outliers,
    percent,
    settle_drift,
    sign_flip_p,
    sign_test_p,
    startup_medians,
    t_interval,
)
from campaigns.judging.verdicts import Context, Evidence, Verdict, judge
from campaigns.scope import Scope, ScopeMismatch, Series, pooled


def effects(*startups, first=True):
    return [
        PairEffect(s, delta, (k % 2 == 0) == first)
        for s, deltas in enumerate(startups)
        for k, delta in enumerate(deltas)
    ]


def test_more_pairs_in_a_startup_do_not_weigh_more():
    pairs = effects([-0.01] * 50, [-0.03] * 2, [-0.02] * 2)
    medians = startup_medians(by_startup(pairs))
    assert medians == {0: -0.01, 1: -0.03, 2: -0.02}
    assert judge(pairs, len(pairs)).effect == -0.02


def test_t_interval_is_scipys():
    medians = [-0.011, -0.009, -0.016, -0.012]
    ours = t_interval(medians)
    low, high = scipy.stats.t.interval(0.95, 3, loc=np.mean(medians), scale=scipy.stats.sem(medians))
    assert (ours.low, ours.high) == pytest.approx((low, high), rel=1e-9)
    assert t_interval(medians[:2]) is None


def test_bootstrap_needs_five_startups_and_follows_the_nesting():
    rng = np.random.default_rng(3)
    few = {s: list(rng.normal(0, 0.01, 6)) for s in range(4)}
    assert nested_bootstrap(few, 1) is None
    wide = {s: [e + d for d in rng.normal(0, 0.0001, 6)] for s, e in enumerate(rng.normal(0, 0.01, 8))}
    between = nested_bootstrap(wide, 1)
    flat = {s: list(rng.normal(0, 0.0001, 6)) for s in range(8)}
    within = nested_bootstrap(flat, 1)
    assert between.half_width > 20 * within.half_width  # pooled pairs would not see the startups
    assert nested_bootstrap(wide, 1) == between  # the seed decides


def test_bootstrap_of_uneven_startups_never_reads_the_padding():
    uneven = {0: [-0.02] * 9, 1: [-0.02], 2: [-0.02] * 3, 3: [-0.02] * 2, 4: [-0.02] * 5}
    found = nested_bootstrap(uneven, 1)
    assert (found.low, found.high) == (-0.02, -0.02)


def test_bootstrap_draws_as_many_pairs_as_a_startup_has():
    statistics = bootstrap_statistics({0: [0.0, 1.0], 1: [0.5] * 3}, seed=1, resamples=20_000)
    # both draws are startup 0 (1/4), and both of its two pairs are the zero one each time (1/4 · 1/4)
    assert np.mean(statistics == 0) == pytest.approx(1 / 64, abs=0.004)


@pytest.mark.parametrize(("n", "p"), [(5, None), (6, 0.03125), (8, 0.0078125)])
def test_sign_flip_is_exact(n, p):
    found = sign_flip_p([-0.01 - 0.0001 * i for i in range(n)])
    assert found is None if p is None else found == pytest.approx(p)


def test_sign_test_is_scipys_binomial():
    for n in range(1, 12):
        for k in range(n + 1):
            assert sign_test_p(k, n) == pytest.approx(scipy.stats.binomtest(k, n).pvalue)
    assert sign_test_p(0, 0) is None


def test_holm_by_hand():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}
    assert holm({}) == {}


@pytest.mark.parametrize(("n", "bound"), [(15, 0.181), (45, 0.064), (90, 0.033), (148, 0.020), (444, 0.0067)])
def test_published_mismatch_bounds(n, bound):
    assert mismatch_bound(n) == pytest.approx(bound, abs=6e-4)


def test_order_contrast_sees_a_second_position_gain_and_ignores_startups():
    gain = 0.05  # the second request of a pair is faster, as with a warm prefix cache

    def deltas(startup):
        return [0.02 * startup + (-gain if k % 2 == 0 else gain) for k in range(6)]

    pairs = effects(*(deltas(s) for s in range(3)))
    contrast = order_contrast(pairs)
    assert contrast.value == pytest.approx(-2 * gain)
    assert (contrast.n_signs, contrast.agreeing) == (9, 9)
    judgement = judge(pairs, len(pairs))
    assert judgement.verdict is Verdict.ORDER_SENSITIVE and "order contrast" in judgement.because
    # a pure difference between startups is not an order effect
    level = [PairEffect(s, 0.05 * s + 0.001 * k, k % 2 == 0) for s in range(3) for k in range(6)]
    assert abs(order_contrast(level).value) < 0.002


def test_order_imbalance_of_an_odd_k_is_told():
    assert order_contrast(effects([0.0] * 5, [0.0] * 5, [0.0] * 5)).imbalance == 3
    assert order_contrast(effects([0.0] * 6)).imbalance == 0


def test_noise_floor_takes_the_best_source():
    own = Interval(-0.004, 0.002, 0.95, "t")
    many = list(np.linspace(-0.01, 0.01, 21))
    assert noise_floor(many, own, 0.001).value == pytest.approx(np.quantile(np.abs(many), 0.95))
    assert noise_floor([0.001, -0.001, 0.002], own, 0.001).source == "A/A half width, 3 startups"
    assert noise_floor([], own, 0.001).value == pytest.approx(0.003)
    assert noise_floor([], own, 0.009).value == 0.009 and noise_floor([], own, 0.009).source == "no A/A"
    assert noise_floor([0.1], None, 0.001) is None  # a screen has no floor of its own


def test_settle_drift_compares_the_halves():
    assert settle_drift([10, 10, 10, 11, 11, 11]) == pytest.approx(math.log(1.1))
    assert settle_drift([10, 10, 99, 11, 11]) == pytest.approx(math.log(1.1))  # the middle one belongs to neither
    assert settle_drift([10]) is None


def test_outliers_are_flagged_by_either_rule():
    assert outliers([16.37, 16.38, 16.36, 16.37, 16.939]) == (4,)
    assert outliers([1.0, 1.0, 1.0, 1.0, 2.0]) == (4,)  # no spread at all
    assert outliers([1.0, 1.1, 0.9, 1.05]) == ()


# -- words ---------------------------------------------------------------------------------------------------------


def steady(effect, startups, spread=0.0002):
    rng = np.random.default_rng(5)
    return effects(*(list(effect + rng.normal(0, spread, 6)) for _ in range(startups)))


@pytest.mark.parametrize(
    ("pairs", "recorded", "context", "evidence", "verdict"),
    [
        ([], 0, Context(), Evidence.SCREEN, Verdict.NOTHING_MEASURED),
        ([], 7, Context(), Evidence.SCREEN, Verdict.INADMISSIBLE),
        (steady(-0.5, 2), 12, Context(), Evidence.SCREEN, Verdict.SCREEN),
        (steady(-0.02, 3), 18, Context(), Evidence.INDICATIVE, Verdict.FASTER),
        (steady(-0.02, 5), 30, Context(), Evidence.SUPPORTED, Verdict.FASTER),
        (steady(0.02, 4), 24, Context(), Evidence.INDICATIVE, Verdict.SLOWER),
        (steady(0.0, 3), 18, Context(), Evidence.INDICATIVE, Verdict.EQUIVALENT),
        (effects([-0.01] * 6, [0.01] * 6, [0.012] * 6), 18, Context(), Evidence.INDICATIVE, Verdict.INCONCLUSIVE),
        # real, and smaller than what an A/A campaign shows between equal arms
        (steady(-0.02, 3), 18, Context(aa_medians=(0.03, -0.03, 0.02) * 3), Evidence.INDICATIVE, Verdict.INCONCLUSIVE),
        # beyond its own noise and below what the client can see
        (steady(-0.02, 3), 18, Context(resolution=0.03, aa_medians=(0.001, -0.001, 0.0)), Evidence.INDICATIVE,
         Verdict.BELOW_RESOLUTION),
    ],
)  # fmt: skip
def test_words_follow_the_numbers(pairs, recorded, context, evidence, verdict):
    judgement = judge(pairs, recorded, context)
    assert (judgement.evidence, judgement.verdict) == (evidence, verdict)
    assert judgement.because


def test_an_interval_that_excludes_zero_is_not_enough_alone():
    pairs = steady(-0.001, 8, 0.00001)
    floor = tuple(0.002 * (-1) ** i for i in range(10))
    assert judge(pairs, 48).verdict is Verdict.FASTER
    assert judge(pairs, 48, Context(aa_medians=floor)).verdict is Verdict.EQUIVALENT
    assert judge(pairs, 48, Context(aa_medians=floor, margin=0.0005)).verdict is Verdict.INCONCLUSIVE


# -- quantiles and scopes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "q", "confidence"),
    [
        (99, 0.99, Confidence.REFUSED),
        (100, 0.99, Confidence.LOW),
        (499, 0.99, Confidence.LOW),
        (500, 0.99, Confidence.OK),
        (9, 0.9, Confidence.REFUSED),
        (10, 0.9, Confidence.LOW),
        (50, 0.9, Confidence.OK),
        (1, 0.5, Confidence.REFUSED),
        (0, 0.5, Confidence.REFUSED),
    ],
)
def test_quantiles_are_refused_where_nothing_stands_behind(n, q, confidence):
    found = quantile(list(range(n)), q)
    assert found.confidence is confidence
    assert (found.shown is None) == (confidence is Confidence.REFUSED)
    assert found.value == (pytest.approx(np.quantile(range(n), q)) if n else None)


def test_the_median_over_requests_counts_rounds_not_requests():
    assert median_quantile([16.0, 17.0, 18.0], [94, 94, 94], 0.99).confidence is Confidence.REFUSED
    assert median_quantile([16.0, 17.0, 18.0], [630, 630, 630], 0.99).shown == 17.0


def test_quantile_interval_widens_with_autocorrelation():
    values = list(np.random.default_rng(0).normal(16, 0.1, 2000))
    low, high = interval(values, 0.9)
    assert low < np.quantile(values, 0.9) < high
    wide = interval(values, 0.9, lag1=0.6)
    assert wide[0] < low and wide[1] > high
    assert interval(values[:5], 0.99) is None


def test_quantile_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    truth = scipy.stats.norm.ppf(0.9)
    held = [low <= truth <= high for low, high in (interval(rng.normal(size=300), 0.9) for _ in range(400))]
    assert 0.92 <= np.mean(held) <= 0.99


@pytest.mark.parametrize("other", [s for s in Scope if s is not Scope.ROUND_CLIENT])
def test_scopes_cannot_be_mixed(other):
    ours, theirs = Series(Scope.ROUND_CLIENT, (16.0, 16.1)), Series(other, (16.0, 16.1))
    for attempt in (lambda: ours + theirs, lambda: ours.log_ratios(theirs), lambda: pooled([ours, theirs])):
        with pytest.raises(ScopeMismatch, match="cannot be put into one figure"):
            attempt()
    assert ours.log_ratios(ours) == (0.0, 0.0)


@settings(deadline=None)
@given(st.floats(0.5, 2.0))
def test_percent_is_the_ratio(ratio):
    assert percent(math.log(ratio)) == pytest.approx(100 * (ratio - 1), abs=1e-9)

"""Effects, intervals, tests and floors against values worked out by hand or by scipy itself."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.judging.decision import holm_shares, null_floor
from campaigns.judging.past import Past, bands, centred, noise_floor
from campaigns.judging.quantiles import Confidence, interval, median_quantile, quantile
from campaigns.judging.rules import judge, judge_campaign
from campaigns.judging.statistics import (
    Interval,
    PairEffect,
    bootstrap_statistics,
    by_startup,
    holm,
    mismatch_bound,
    nested_bootstrap,
    order_contrast,
    outliers,
    percent,
    settle_drift,
    sign_flip_p,
    sign_test_p,
    startup_medians,
    t_interval,
)
from campaigns.judging.verdicts import Evidence, Sample, Setting, Verdict
from campaigns.scope import Scope, ScopeMismatch, Series, pooled
from results.reports.tables import cells


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
    assert judgement.verdict is Verdict.ORDER_SENSITIVE and "depends on which arm goes first" in judgement.because
    # a pure difference between startups is not an order effect
    level = [PairEffect(s, 0.05 * s + 0.001 * k, k % 2 == 0) for s in range(3) for k in range(6)]
    assert abs(order_contrast(level).value) < 0.002


def test_order_imbalance_of_an_odd_k_is_told():
    assert order_contrast(effects([0.0] * 5, [0.0] * 5, [0.0] * 5)).imbalance == 3
    assert order_contrast(effects([0.0] * 6)).imbalance == 0


def test_holm_shares_reject_what_holm_rejects():
    rng = np.random.default_rng(4)
    for p in rng.random((200, 5)) ** 3:
        adjusted = holm({str(i): float(value) for i, value in enumerate(p)})
        rejected = [adjusted[str(i)] <= 0.05 for i in range(5)]
        assert (p <= holm_shares(p, 0.05)).tolist() == rejected


def test_a_floor_shrinks_as_the_headline_does():
    past = np.random.default_rng(0).normal(0, 0.005, 40)
    floors = [float(null_floor(past, n)) for n in (3, 8, 30)]
    assert floors[0] > 1.4 * floors[1] > 1.4 * 1.5 * floors[2]
    # the median of three normal startups has sd 0.67 of one
    assert floors[0] == pytest.approx(1.96 * 0.67 * past.std(), rel=0.12)


def test_noise_floor_takes_the_best_source():
    own = Interval(-0.004, 0.002, 0.95, "t")
    aa = Past(aa=(0.001, -0.001, 0.002))
    assert noise_floor(aa, 3, own, None, None).source == "A/A, 3 startups"
    assert noise_floor(aa, 3, own, None, None).value < 0.0021 < noise_floor(aa, 3, own, 0.009, None).value == 0.009
    both = Past(aa=aa.aa, ab=centred((-0.02, -0.021, -0.019)))
    assert noise_floor(both, 3, own, None, None).source == "A/A, 3 startups; A/B, 3 startups"
    assert noise_floor(Past(), 3, own, 0.001, None).value == pytest.approx(0.003)
    assert noise_floor(Past(), 3, own, 0.001, None).source == "no A/A"
    assert noise_floor(aa, 2, None, 0.001, None) is None  # a screen has none


def test_bands_are_told_from_chance():
    rng = np.random.default_rng(2)
    one = [bands(list(rng.normal(0, 0.002, 10))) for _ in range(400)]
    assert sum(found is not None for found in one) <= 24  # 5 %, and what 400 draws add
    two = [bands(list(rng.choice([-0.005, 0.005], 12) + rng.normal(0, 0.0015, 12))) for _ in range(200)]
    assert sum(found is not None for found in two) > 150
    assert np.median([found for found in two if found]) == pytest.approx(0.01, rel=0.1)
    assert bands([0.0, 0.01] * 3) is None  # six startups are too few to know


def test_fewer_than_five_startups_in_known_bands_are_not_told_to_be_faster():
    banded = Past(aa=tuple(0.005 * (-1) ** i + 0.0001 * i for i in range(10)))
    within, beyond = steady(-0.008, 3), steady(-0.03, 3)
    assert judge(within, 18).verdict is Verdict.FASTER
    assert judge(within, 18, past=banded).verdict is Verdict.INCONCLUSIVE
    found = judge(beyond, 18, past=banded)
    assert found.verdict is Verdict.FASTER and found.banded and "fewer than 5 startups" in found.notes[0]
    assert cells.verdict(found) == "~ indicative (faster)"
    assert cells.verdict(judge(steady(-0.03, 5), 30, past=banded)) == "+ faster"
    assert cells.verdict(judge(steady(0.03, 3), 18, past=banded)) == "- slower"


def test_levels_of_the_control_tell_of_bands_too():
    before = Past(levels=tuple(2.0 + 0.01 * (i % 2) + 0.0001 * i for i in range(9)))
    found = judge(steady(-0.008, 3), 18, past=before, levels={0: 2.0, 1: 2.0, 2: 2.0})
    assert found.bands == pytest.approx(0.01, rel=0.1) and found.verdict is Verdict.INCONCLUSIVE


def test_a_loaded_host_and_a_restless_control_support_nothing():
    pairs = steady(-0.02, 6)
    assert judge(pairs, 36).evidence is Evidence.SUPPORTED
    busy = judge_campaign({"": Sample(pairs, 36)}, Setting(overloaded="the load reached 9 on 2 CPUs")).campaign
    assert busy.evidence is Evidence.INDICATIVE and "the load reached 9" in busy.notes[-1]
    restless = judge(pairs, 36, settle=dict.fromkeys(range(6), 0.05))
    assert restless.evidence is Evidence.INDICATIVE and "drifted by +5.127 %" in restless.notes[-1]
    assert judge(pairs, 36, settle=dict.fromkeys(range(6), 0.01)).evidence is Evidence.SUPPORTED


@pytest.mark.parametrize(("effect", "order", "verdict"), [
    (0.05, 0.04, Verdict.SLOWER),  # never hidden
    (-0.05, 0.01, Verdict.FASTER),  # a note
    (-0.01, 0.05, Verdict.ORDER_SENSITIVE),
    (0.0, 0.002, Verdict.EQUIVALENT),
    (0.0, 0.05, Verdict.ORDER_SENSITIVE),
])  # fmt: skip
def test_order_decides_only_where_the_conclusion_depends_on_it(effect, order, verdict):
    pairs = [
        PairEffect(p.startup, p.delta_log + (order / 2 if p.control_first else -order / 2), p.control_first)
        for p in steady(effect, 8)
    ]
    found = judge(pairs, len(pairs))
    assert found.verdict is verdict
    assert any("the verdict stands" in note for note in found.notes) == (verdict is not Verdict.ORDER_SENSITIVE)


def test_one_slower_fixture_takes_the_word_and_a_certain_one_gives_its_own():
    def campaign(slow, spread):
        fixtures = {f"f{i}": steady(-0.03, 5) for i in range(4)} | {"slow": steady(slow, 5, spread)}
        return judge_campaign({name: Sample(pairs, 30) for name, pairs in fixtures.items()}).campaign

    assert campaign(0.05, 0.0002).verdict is Verdict.SLOWER
    unsure = campaign(0.02, 0.03)
    assert unsure.verdict is Verdict.INCONCLUSIVE and "1 of 5 fixtures slower (slow: " in unsure.because
    assert campaign(-0.01, 0.0002).verdict is Verdict.FASTER


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
    ("pairs", "recorded", "more", "evidence", "verdict"),
    [
        ([], 0, {}, Evidence.SCREEN, Verdict.NOTHING_MEASURED),
        ([], 7, {}, Evidence.SCREEN, Verdict.INADMISSIBLE),
        (steady(-0.5, 2), 12, {}, Evidence.SCREEN, Verdict.SCREEN),
        (steady(-0.02, 3), 18, {}, Evidence.INDICATIVE, Verdict.FASTER),
        (steady(-0.02, 5), 30, {}, Evidence.SUPPORTED, Verdict.FASTER),
        (steady(0.02, 4), 24, {}, Evidence.INDICATIVE, Verdict.SLOWER),
        (steady(0.0, 3), 18, {}, Evidence.INDICATIVE, Verdict.EQUIVALENT),
        (effects([-0.01] * 6, [0.01] * 6, [0.012] * 6), 18, {}, Evidence.INDICATIVE, Verdict.INCONCLUSIVE),
        # real, and smaller than what an A/A campaign shows between equal arms
        (steady(-0.02, 3), 18, {"past": Past((0.03, -0.03, 0.025) * 3)}, Evidence.INDICATIVE, Verdict.INCONCLUSIVE),
        # beyond its own noise and below what the client can see
        (steady(-0.02, 3), 18, {"resolution": 0.03}, Evidence.INDICATIVE, Verdict.BELOW_RESOLUTION),
    ],
)  # fmt: skip
def test_words_follow_the_numbers(pairs, recorded, more, evidence, verdict):
    judgement = judge(pairs, recorded, **more)
    assert (judgement.evidence, judgement.verdict) == (evidence, verdict)
    assert judgement.because


def test_an_interval_that_excludes_zero_is_not_enough_alone():
    pairs = steady(-0.001, 8, 0.00001)
    noisy = Past(tuple(0.002 * (-1) ** i for i in range(10)))
    assert judge(pairs, 48).verdict is Verdict.FASTER
    assert judge(pairs, 48, past=noisy).verdict is Verdict.EQUIVALENT
    sample = {"": Sample(pairs, 48, past=noisy)}
    assert judge_campaign(sample, Setting(margin=0.0005)).campaign.verdict is Verdict.INCONCLUSIVE


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

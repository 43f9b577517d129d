"""Looking after every startup: published boundaries, a simulated world, and one campaign judged as thousands are."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri, stdtr

from campaigns.judging.looks import Looks, nominal, spent_at
from campaigns.judging.rules import judge, judge_campaign
from campaigns.judging.statistics import PairEffect
from campaigns.judging.verdicts import Sample, Setting, Verdict
from campaigns.simulate.judged import ended, judged, seen
from campaigns.simulate.worlds import AR1, NORMAL, Model, pair_effects

ALPHA = 0.05
_WORDS = ("inconclusive", "faster", "slower", "equivalent", "order-sensitive", "below-resolution")


def pocock_type(share):
    return ALPHA * math.log1p((math.e - 1) * share)


def obrien_fleming_type(share):
    return 2 * (2 - 2 * ndtr(-ndtri(ALPHA / 4) / math.sqrt(share)))


@pytest.mark.parametrize(
    ("spend", "published"),
    [  # two-sided 5 %, five equally spaced looks: Reboussin, DeMets, Kim and Lan, Controlled Clinical Trials 21 (2000)
        (pocock_type, (2.4380, 2.4268, 2.4101, 2.3966, 2.3859)),
        (obrien_fleming_type, (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)),
    ],
)
def test_boundaries_of_many_degrees_of_freedom_are_the_published_normal_ones(spend, published):
    levels = np.array(list(spent_at(range(24, 121, 24), spend)))
    assert -ndtri(levels / 2) == pytest.approx(published, abs=0.012)


@pytest.mark.parametrize(("first", "last"), [(3, 16), (3, 5), (8, 12)])
def test_paths_of_equal_arms_cross_as_often_as_is_spent(first, last):
    """What the chain computes, drawn: with two degrees of freedom as with fifteen."""
    n, looks = 100_000, Looks(first, last)
    effects = np.random.default_rng(4).standard_normal((n, last))
    crossed = np.zeros(n, bool)
    for k in range(first, last + 1):
        t = effects[:, :k].mean(1) / effects[:, :k].std(1, ddof=1) * math.sqrt(k)
        crossed |= 2 * stdtr(k - 1, -np.abs(t)) <= looks.level(k, ALPHA)
        assert crossed.mean() == pytest.approx(ALPHA * k / last, abs=4 * math.sqrt(ALPHA / n))


def test_one_look_is_the_plain_test():
    assert Looks(5, 5).level(5, ALPHA) == ALPHA and Looks(5, 9).level(4, ALPHA) == 0.0
    assert nominal(None, 7, ALPHA) == ALPHA


@pytest.mark.parametrize("noise", [NORMAL, AR1])
@pytest.mark.parametrize(("first", "last", "fixtures"), [(3, 16, 1), (3, 8, 4), (5, 12, 1)])
@pytest.mark.parametrize("between", [0.003, 0.02])  # the second is too noisy to end as equivalent
def test_equal_arms_are_told_to_differ_in_five_percent_whatever_the_looks(noise, first, last, fixtures, between):
    found = ended(Model(last, between=between, fixtures=fixtures, noise=noise), Looks(first, last), 2000, 8)
    assert max(found.told.differ, found.told.exit_2) <= ALPHA + 3 * 0.0049  # three standard errors of 2000


def test_arms_that_differ_by_the_margin_are_told_equivalent_in_five_percent():
    found = ended(Model(16, truth=math.log1p(0.005)), Looks(3, 16), 2000, 8)
    assert found.told.share(_WORDS.index("equivalent")) <= ALPHA + 3 * 0.0049


def test_large_effects_end_at_the_first_look_and_small_ones_later():
    lengths = [ended(Model(16, truth=t), Looks(3, 16), 400, 1).startups.mean() for t in (0.05, 0.01, 0.005)]
    assert lengths[0] < 3.1 < lengths[1] < 6 < lengths[2] < 12


@pytest.mark.parametrize("fixtures", [1, 3])
def test_thousands_are_looked_at_as_one_is(fixtures):
    looks, model = Looks(3, 6), Model(4, fixtures=fixtures, truth=-0.006)
    deltas = model.draw(np.random.default_rng(3), 25)
    many = judged(seen(deltas, model.control_first), looks=looks)
    setting = Setting(margin=np.expm1(0.005), looks=looks)
    for i, campaign in enumerate(deltas):
        pairs = {str(f): pair_effects(rows, model.control_first) for f, rows in enumerate(campaign)}
        one = judge_campaign({name: Sample(p, len(p)) for name, p in pairs.items()}, setting)
        assert one.campaign.verdict == _WORDS[many.campaign[i]]
        assert [each.verdict for each in one.fixtures.values()] == [_WORDS[word] for word in many.fixtures[i]]


def startups(*effects):
    return [PairEffect(s, effect, turn) for s, effect in enumerate(effects) for turn in (True, False)]


def test_the_interval_after_looking_decides_and_is_wider():
    pairs = startups(-0.010, -0.012, -0.011, -0.014)
    plain = judge(pairs, 8)
    looked = judge_campaign({"": Sample(pairs, 8)}, Setting(looks=Looks(3, 16))).campaign
    assert looked.interval.half_width > 1.5 * plain.interval.half_width and looked.interval.level == 0.95
    assert looked.interval.method.endswith("look 2 of at most 14") and looked.look == 2
    assert looked.p is None and looked.verdict is Verdict.FASTER and looked.decided
    near = judge_campaign({"": Sample(startups(-0.002, -0.007, -0.005), 6)}, Setting(looks=Looks(3, 16))).campaign
    assert near.verdict is Verdict.INCONCLUSIVE and not near.decided


def test_before_the_first_look_nothing_is_told():
    found = judge_campaign({"": Sample(startups(-0.01, -0.011, -0.0105), 6)}, Setting(looks=Looks(5, 9))).campaign
    assert found.verdict is Verdict.INCONCLUSIVE and found.interval is None and found.look == 0
    assert found.because == "3 startups: the first look is after 5"

"""The order of requests: alternation, the coin per fixture, its flip per startup, and purity."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.order import blocks, first_role, life_warmups, pair_keys
from campaigns.plan import Arm, CampaignPlan, Fixture, Order, Role, ServerPlan


def plan(**changes: object) -> CampaignPlan:
    base = CampaignPlan(
        name="t",
        control=Arm("a"),
        candidate=Arm("b"),
        fixtures=(Fixture("x", "{}", (1, 2)), Fixture("y", "{}", (7,))),
        server=ServerPlan("dflash2"),
        startups=2,
        pairs=4,
        warmups=1,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def leaders(p: CampaignPlan, startup: int, fixture: str) -> list[Role]:
    block = next(b for b in blocks(p, startup) if b.fixture == fixture)
    return [step.role for step in block.steps if step.order_in_pair == 0]


def test_abba_alternates_the_first_arm_from_pair_to_pair() -> None:
    first, second, third, fourth = leaders(plan(), 0, "x")
    assert first == third and second == fourth and first is second.other


def test_the_first_arm_flips_from_startup_to_startup() -> None:
    assert leaders(plan(), 0, "x")[0] is leaders(plan(), 1, "x")[0].other


def test_blocked_runs_one_arm_after_the_other() -> None:
    steps = blocks(plan(order=Order.BLOCKED), 0)[0].steps
    assert len({s.role for s in steps[:4]}) == 1 and {s.role for s in steps[4:]} == {steps[0].role.other}
    assert [s.key for s in steps[:4]] == [s.key for s in steps[4:]]


@given(seed=st.integers(0, 2**32), pairs=st.integers(1, 9), startups=st.integers(1, 5))
def test_each_pair_has_both_arms_once_and_even_k_is_balanced(seed: int, pairs: int, startups: int) -> None:
    p = plan(seed=seed, pairs=pairs, startups=startups)
    steps = [step for s in range(startups) for block in blocks(p, s) for step in block.steps]
    assert Counter((step.key, step.role) for step in steps).most_common(1)[0][1] == 1
    assert len(steps) == 2 * len(pair_keys(p)) == 2 * startups * 3 * pairs
    if pairs % 2 == 0:
        first = Counter(step.role for step in steps if step.order_in_pair == 0)
        assert first[Role.CONTROL] == first[Role.CANDIDATE]


def test_the_coin_differs_between_fixtures_and_seeds_but_never_between_runs() -> None:
    coins = {first_role(seed, name, 0) for seed in range(8) for name in "abcdefgh"}
    assert coins == set(Role)
    assert blocks(plan(), 0) == blocks(plan(), 0)


def test_a_corpus_campaign_has_one_pair_per_case_and_seed_and_alternates() -> None:
    p = plan(corpus="c" * 64, pairs=1, fixtures=tuple(Fixture(f"case{i}", "{}", (0, 1)) for i in range(6)))
    found = blocks(p, 0)
    assert len(found) == 12 and all(len(b.keys) == 1 and b.warmups == 0 for b in found)
    firsts = [b.steps[0].role for b in found]
    assert all(one is other.other for one, other in itertools.pairwise(firsts))
    assert life_warmups(p) == 1 and life_warmups(plan()) == 0


def test_a_corpus_campaign_runs_only_the_seeds_that_a_case_has() -> None:
    p = plan(corpus="c", pairs=1, fixtures=(Fixture("one", "{}", (0,)), Fixture("two", "{}", (0, 1))))
    assert [(b.fixture, b.seed) for b in blocks(p, 0)] == [("one", 0), ("two", 0), ("two", 1)]


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        plan().pairs = 3  # type: ignore[misc]

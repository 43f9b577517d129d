"""The order of every request of a plan: a pure function of it, so a resumed campaign replays it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from campaigns.plan import Block, CampaignPlan, Order, PairKey, Role, Step


def first_role(campaign_seed: int, name: str, turn: int) -> Role:
    """The arm that goes first: a fixed coin per name, flipped by every turn (startup, case)."""
    digest = hashlib.sha256(f"{campaign_seed}\0{name}".encode()).digest()
    return Role.CONTROL if (digest[0] + turn) % 2 == 0 else Role.CANDIDATE


def blocks(plan: CampaignPlan, startup: int) -> tuple[Block, ...]:
    """All blocks of one startup in the order in which they run."""
    return tuple(_corpus_blocks(plan, startup) if plan.corpus else _fixture_blocks(plan, startup))


def life_warmups(plan: CampaignPlan) -> int:
    """Requests per arm that a new server life runs before its first block; elsewhere each block carries its own."""
    return plan.warmups if plan.corpus else 0


def pair_keys(plan: CampaignPlan) -> tuple[PairKey, ...]:
    """Every pair that a complete campaign holds."""
    return tuple(key for s in range(plan.startups) for block in blocks(plan, s) for key in block.keys)


def _fixture_blocks(plan: CampaignPlan, startup: int) -> Iterator[Block]:
    for fixture in plan.fixtures:
        for seed in fixture.seeds:
            first = first_role(plan.seed, fixture.id, startup)
            keys = [PairKey(startup, fixture.id, seed, repeat) for repeat in range(plan.pairs)]
            yield Block(startup, fixture.id, seed, plan.warmups, tuple(_steps(keys, first, plan.order)))


def _corpus_blocks(plan: CampaignPlan, startup: int) -> Iterator[Block]:
    cases = [(f.id, seed) for seed in sorted({s for f in plan.fixtures for s in f.seeds}) for f in plan.fixtures]
    cases = [(fixture, seed) for fixture, seed in cases if seed in plan.fixture(fixture).seeds]
    for turn, (fixture, seed) in enumerate(cases):
        first = first_role(plan.seed, plan.corpus, startup + turn)
        key = PairKey(startup, fixture, seed, 0)
        yield Block(startup, fixture, seed, 0, tuple(_steps([key], first, plan.order)))


def _steps(keys: list[PairKey], first: Role, order: Order) -> Iterator[Step]:
    if order is Order.BLOCKED:
        yield from (Step(key, first, 0) for key in keys)
        yield from (Step(key, first.other, 1) for key in keys)
        return
    for turn, key in enumerate(keys):
        leader = first if turn % 2 == 0 else first.other
        yield Step(key, leader, 0)
        yield Step(key, leader.other, 1)

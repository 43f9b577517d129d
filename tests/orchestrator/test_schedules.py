"""Schedules are checked and built before the lease."""

from __future__ import annotations

import pytest

from campaigns.errors import UsageError, WorldError
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from orchestrator import schedules
from orchestrator.schedules import Listed


def plan(*candidate: tuple[str, str]) -> CampaignPlan:
    return CampaignPlan("t", Arm("a"), Arm("b", candidate), (Fixture("f", "{}", (0,)),), ServerPlan("dflash2"))


def test_the_kernels_list_what_the_arms_name() -> None:
    listed = schedules.listing()
    schedules.check(plan(("projection", "columns-32")), listed)
    assert not listed["projection"]["columns-32"].native
    assert schedules.build(plan(("projection", "columns-32")), listed) == {}


def test_unknown_operator_and_schedule_are_named_with_the_known_ones() -> None:
    listed = {"projection": {"dense": Listed(False, ""), "other": Listed(False, "")}}
    with pytest.raises(UsageError, match=r"projection has no schedule nope; known: dense, other"):
        schedules.check(plan(("projection", "nope")), listed)
    with pytest.raises(UsageError, match=r"unknown operator gdn; known: projection"):
        schedules.check(plan(("gdn", "x")), listed)


def test_what_cannot_be_built_is_said_before_anything_is_leased() -> None:
    listed = {"projection": {"imagined": Listed(True, "abc")}}
    with pytest.raises(WorldError, match=r"projection/imagined cannot be built here: .*imagined"):
        schedules.build(plan(("projection", "imagined")), listed)

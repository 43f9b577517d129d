"""Schedules are checked and built before the lease."""

from __future__ import annotations

from dataclasses import replace

import pytest

from campaigns.errors import NoDevice, UsageError, WorldError
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from orchestrator.preparation import schedules
from orchestrator.preparation.schedules import Listed, Listing

HOPPER = Listed(True, "abc", "cuda", ("sm_90",))
LISTED = Listing(
    {
        "projection": {"dense": Listed(False, ""), "tiles": Listed(False, "", "cpu")},
        "attention": {"gathered": Listed(False, ""), "grouped": HOPPER, "avx": Listed(True, "", "cpu", ("v3", "v4"))},
    }
)
HERE = {"cpu": frozenset({"v4"}), "cuda": frozenset({"sm_90"})}


def plan(*candidate: tuple[str, str], args: tuple[str, ...] = (), arm_args: tuple[str, ...] = ()) -> CampaignPlan:
    server = ServerPlan("dflash2", args=args)
    return CampaignPlan("t", Arm("a"), Arm("b", candidate, args=arm_args), (Fixture("f", "{}", (0,)),), server)


def test_the_kernels_list_what_the_arms_name() -> None:
    listed = schedules.listing()
    schedules.check(plan(("projection", "columns-32")), listed)
    assert not listed.operators["projection"]["columns-32"].native
    assert schedules.build(plan(("projection", "columns-32")), listed) == {}


def test_the_kernels_list_where_a_schedule_runs() -> None:
    listed = schedules.listing()
    found = listed.operators["attention"]
    assert (found["grouped"].device, found["grouped"].archs) == ("cuda", ("sm_90",))
    assert (found["gathered"].device, found["gathered"].archs) == ("", ())
    assert found["cpu-grouped"].device == "cpu" and listed.cpu


def test_unknown_operator_and_schedule_are_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"projection has no schedule nope; known: dense, tiles"):
        schedules.check(plan(("projection", "nope")), LISTED)
    with pytest.raises(UsageError, match=r"unknown operator gdn; known: attention, projection"):
        schedules.check(plan(("gdn", "x")), LISTED)


@pytest.mark.parametrize(
    ("args", "arm_args", "schedule", "words"),
    [
        ((), (), ("attention", "grouped"), "runs on cuda alone and its server runs on cpu"),
        (("--device", "cuda"), (), ("projection", "tiles"), "runs on cpu alone and its server runs on cuda"),
        (("--device=cuda",), ("--device", "cpu"), ("attention", "grouped"),
         "runs on cuda alone and its server runs on cpu"),
        ((), ("--device=cuda",), ("projection", "tiles"), "runs on cpu alone and its server runs on cuda"),
    ],
)  # fmt: skip
def test_a_schedule_of_another_device_is_refused_with_arm_operator_and_remedy(
    args: tuple[str, ...], arm_args: tuple[str, ...], schedule: tuple[str, str], words: str
) -> None:
    named = plan(("projection", "dense"), schedule, args=args, arm_args=arm_args)
    with pytest.raises(UsageError, match=f"arm b: {'/'.join(schedule)} {words}: name a schedule for"):
        schedules.check_machines(named, LISTED, HERE)


def test_schedules_of_the_servers_own_device_pass() -> None:
    schedules.check_machines(plan(("attention", "avx"), ("projection", "tiles")), LISTED, HERE)
    schedules.check_machines(plan(("attention", "grouped"), args=("--device", "cuda")), LISTED, HERE)
    schedules.check_machines(plan(("attention", "gathered"), args=("--device", "cuda")), LISTED, {})
    schedules.check_machines(plan(("attention", "grouped"), args=("--device", "cuda:0")), LISTED, HERE)


def test_a_schedule_of_another_architecture_is_refused_where_that_is_known() -> None:
    cuda = plan(("attention", "grouped"), args=("--device", "cuda"))
    with pytest.raises(NoDevice, match=r"arm b: attention/grouped runs on sm_90 alone and .* sm_100 or sm_80: lease"):
        schedules.check_machines(cuda, LISTED, {"cuda": frozenset({"sm_80", "sm_100"})})
    with pytest.raises(NoDevice, match=r"arm b: attention/avx runs on v3 or v4 alone and .* is aarch64"):
        schedules.check_machines(plan(("attention", "avx")), LISTED, {"cpu": frozenset({"aarch64"})})
    for known in ({"cuda": frozenset({"sm_80", "sm_90"})}, {"cuda": frozenset()}, {}):
        schedules.check_machines(cuda, LISTED, known)


def test_the_control_is_judged_too() -> None:
    named = plan(("projection", "dense"))
    with pytest.raises(UsageError, match="arm a: attention/grouped runs on cuda alone"):
        schedules.check_machines(replace(named, control=Arm("a", (("attention", "grouped"),))), LISTED, HERE)


def test_what_cannot_be_built_is_said_before_anything_is_leased() -> None:
    listed = Listing({"projection": {"imagined": Listed(True, "abc")}})
    with pytest.raises(WorldError, match=r"projection/imagined cannot be built here: .*imagined"):
        schedules.build(plan(("projection", "imagined")), listed)

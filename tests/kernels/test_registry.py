"""Selection that explains itself, hit counters that never lie, names that must exist."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import kernels.list as listing
from kernels.errors import UnknownOperator, UnknownSchedule
from kernels.native import building, toolkit
from kernels.native.machine import CPU, HOPPER, cpu_arch
from kernels.operators import OPERATORS, operator
from kernels.registry import Bitwise, Bound, Library, Op, Refusal, Schedule, select
from kernels.routes import MOST_REASONS, OTHER_REASONS, Routes

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Size:
    n: int


def small_only(problem: Size) -> Refusal | None:
    return None if problem.n < 10 else Refusal(f"n is {problem.n}; below 10")


PLAIN = Schedule("plain", 1, Bound(0.1, "any order"), lambda problem: None, lambda x: ("plain", x))
QUICK = Schedule("quick", 3, Bitwise("plain"), small_only, lambda x, twice=False: ("quick", x))
OP = Op("projection", lambda x: x, (PLAIN, QUICK), "plain")


def routes(**enabled: str) -> Routes:
    made = Routes(rank=2)
    made._enabled.update(enabled)
    return made


def test_the_default_runs_unless_asked():
    chosen = select(OP, Size(1))
    assert chosen.schedule is PLAIN and chosen.refusals == () and chosen.explain() == "plain: the default"


def test_a_request_is_honoured_and_explained():
    chosen = select(OP, Size(1), "quick")
    assert chosen.schedule is QUICK and chosen.explain() == "quick: as requested"


def test_a_refused_request_takes_the_default_and_says_why():
    chosen = select(OP, Size(12), "quick")
    assert chosen.schedule is PLAIN
    assert chosen.explain() == "plain: quick refused: n is 12; below 10"


def test_a_preferred_schedule_comes_before_the_default_where_it_takes_the_problem():
    op = replace(OP, preferred=("quick",))
    assert select(op, Size(1)).schedule is QUICK and select(op, Size(1)).refusals == ()
    assert select(op, Size(12)).schedule is PLAIN and select(op, Size(12)).refusals == ()
    assert select(op, Size(1), "plain").schedule is PLAIN  # asked for by name
    other = replace(QUICK, name="other", guard=lambda problem: Refusal("never"))
    chosen = select(replace(op, schedules=(PLAIN, QUICK, other)), Size(1), "other")
    assert chosen.schedule is QUICK and chosen.refusals == (("other", Refusal("never")),)


def test_a_schedule_needs_its_library():
    missing = replace(QUICK, library=Library("no_such_module_here", "some-package"))
    assert missing.refusal(Size(1)) == Refusal("some-package is not installed")
    assert listing.unavailable(missing) == "some-package is not installed"
    assert replace(QUICK, library=Library("json", "json")).refusal(Size(12)) == Refusal("n is 12; below 10")


def test_an_unknown_schedule_is_an_error_that_names_the_known_ones():
    with pytest.raises(UnknownSchedule, match="'projection' has no schedule 'fast'; it has: plain, quick"):
        select(OP, Size(1), "fast")


def test_hits_are_counted_under_what_ran():
    made = routes(projection="quick")
    assert made.run(OP, Size(1), 5) == ("quick", 5)
    assert made.run(OP, Size(1), 6, twice=True) == ("quick", 6)
    assert made.run(OP, Size(50), 7) == ("plain", 7)
    assert made.counters() == [
        {"rank": 2, "operator": "projection", "schedule": "plain", "hits": 1},
        {"rank": 2, "operator": "projection", "schedule": "quick", "hits": 2},
    ]
    refusal = {"rank": 2, "operator": "projection", "schedule": "quick", "reason": "n is 50; below 10", "calls": 1}
    assert made.refusals() == [refusal]


def test_a_schedules_first_reasons_keep_their_words_and_every_call_is_counted():
    made = routes(projection="quick")
    for n in (*range(10, 30), 10, 11):
        made.run(OP, Size(n), 0)
    calls = {row["reason"]: row["calls"] for row in made.refusals()}
    assert len(calls) == MOST_REASONS + 1 and calls["n is 10; below 10"] == 2
    assert calls[OTHER_REASONS] == 20 - MOST_REASONS and sum(calls.values()) == 22


@dataclass(frozen=True)
class Placed:
    device: str
    arch: str


def test_a_schedule_runs_on_its_machine_alone():
    assert QUICK.refusal(Size(1)) is None  # names none: everywhere
    hopper = replace(PLAIN, machine=HOPPER)
    assert hopper.refusal(Placed("cuda", "sm_90")) is None
    assert hopper.refusal(Placed("cuda", "sm_80")) == Refusal("architecture 'sm_80'; only sm_90")
    assert hopper.refusal(Placed("cpu", "x86-64-v4")) == Refusal("device 'cpu'; only 'cuda'")
    assert replace(PLAIN, machine=CPU).refusal(Placed("cpu", "aarch64")) is None


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_native_schedules_name_a_machine_that_their_library_is_built_for(op):
    for schedule in (s for s in op.schedules if s.build):
        assert schedule.machine.device == {"cuda": "cuda", "c++": "cpu"}[schedule.build.language]
        assert schedule.machine.archs and all(schedule.build.arch_for(arch) for arch in schedule.machine.archs)


def test_a_replayed_graph_counts_what_it_captured():
    made = routes(projection="quick")
    made.count("projection", made.selection(OP, Size(1)), hits=64)
    assert made.counters()[0]["hits"] == 64


def test_enabling_replaces_and_forgets_earlier_choices():
    made = Routes()
    made.enable({"projection": "columns-32"})
    real, problem = operator("projection"), __import__("kernels.projection").projection.Problem(1, 8, 8)
    assert made.selection(real, problem).schedule.name == "columns-32"
    made.enable({})
    assert made.enabled == {} and made.selection(real, problem).schedule.name == "dense"


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"convolution": "x"}, UnknownOperator, "no operator 'convolution'; there are: norm, projection"),
        ({"projection": "columns-33"}, UnknownSchedule, "'projection' has no schedule 'columns-33'; it has: dense"),
    ],
    ids=["operator", "schedule"],
)
def test_enabling_an_unknown_name_changes_nothing(asked, error, words):
    made = Routes()
    made.enable({"projection": "columns-32"})
    with pytest.raises(error, match=words):
        made.enable({"attention": "gathered", **asked})
    assert made.enabled == {"projection": "columns-32"}


def test_enabled_is_a_copy():
    made = Routes()
    made.enabled["projection"] = "columns-32"
    assert made.enabled == {}


@pytest.mark.parametrize(
    ("schedules", "default", "words"),
    [
        ((PLAIN, PLAIN), "plain", "twice"),
        ((PLAIN,), "quick", "to be its default"),
        ((QUICK,), "quick", "unknown parent 'plain'"),
        ((replace(PLAIN, contract=Bound(0.1, "", parent="gone")),), "plain", "unknown parent 'gone'"),
    ],
    ids=["duplicate", "no default", "bitwise with nobody", "bound by nobody"],
)
def test_an_operator_is_consistent(schedules, default, words):
    with pytest.raises(AssertionError, match=words):
        Op("projection", print, schedules, default)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_defaults_are_torch_schedules_that_take_everything(op):
    default = op.schedule(op.default)
    assert default.build is None and default.refusal(None) is None


@pytest.mark.parametrize("name", ["projection", "attention", "gdn", "selection"])
def test_these_operators_have_two_native_schedules_for_the_cpu(name):
    assert len([s for s in operator(name).schedules if s.build and s.build.language == "c++"]) >= 2


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_builds_carry_the_names_and_revisions_of_their_schedules(op):
    assert all(s.build.operator == op.name and s.build.schedule == s.name for s in op.schedules if s.build)
    assert all(s.build.revision == s.revision for s in op.schedules if s.build)


def test_library_names_are_unique():
    names = [s.build.name for op in OPERATORS for s in op.schedules if s.build]
    assert len(names) == len(set(names))


def test_listing_loads_no_torch_and_names_everything():
    code = "import sys, kernels.list as l; import json; print(json.dumps([l.describe(), 'torch' in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    listing, heavy = json.loads(done.stdout)
    assert not heavy
    found = {op["name"]: {s["name"]: s for s in op["schedules"]} for op in listing["operators"]}
    assert {name: set(schedules) for name, schedules in found.items()} == {
        op.name: {s.name for s in op.schedules} for op in OPERATORS
    }
    tile = found["projection"]["cpu-tile"]
    assert tile["contract"] == {"kind": "bitwise", "parent": "cpu-dot"} and tile["revision"] == 1
    assert len(tile["build_sha256"]) == 64 and tile["build_sha256"] != found["projection"]["cpu-dot"]["build_sha256"]
    assert found["projection"]["dense"]["default"] and found["projection"]["dense"]["build_sha256"] is None
    assert found["projection"]["dense"]["machine"] is None and listing["cpu"] == cpu_arch()
    assert found["attention"]["grouped"]["machine"] == {"device": "cuda", "archs": ["sm_90"]}


def test_listing_says_what_this_machine_cannot_have(monkeypatch, tmp_path):
    schedule = operator("projection").schedule("cpu-tile")
    monkeypatch.setattr(building, "library_path", lambda spec, arch: tmp_path / spec.name)
    assert listing.unavailable(operator("projection").schedule("dense")) is None
    monkeypatch.setattr(toolkit, "cxx_path", lambda: None)
    assert listing.unavailable(schedule) == "projection_cpu_tile is not built and this machine has no compiler for c++"
    (tmp_path / "projection_cpu_tile").touch()
    assert listing.unavailable(schedule) is None


def test_every_arm_names_schedules_that_exist():
    yaml = pytest.importorskip("yaml")
    arms = sorted((ROOT / "conf" / "arm").glob("*.yaml"))
    assert arms
    for path in arms:
        arm = yaml.safe_load(path.read_text())
        assert arm["name"] == path.stem
        for name, schedule in (arm.get("schedules") or {}).items():
            operator(name).schedule(schedule)

"""What a person reads while a campaign runs: how long it will take is right from the first pair on."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from rich.console import Console

from campaigns.order import pair_keys
from campaigns.plan import Arm, CampaignPlan, Fixture, PairKey, ServerPlan
from campaigns.records import Exactness, Pair
from orchestrator.output.eta import LONG_CHARACTERS, Left, Pace, in_words
from orchestrator.output.progress import View

PLAN = CampaignPlan(
    name="t",
    control=Arm("a"),
    candidate=Arm("b"),
    fixtures=(Fixture("f", "{}", (1,)), Fixture("g", "{}", (2,))),
    server=ServerPlan("dflash2"),
    startups=3,
    pairs=4,
)
START_S, PAIR_S = 30.0, 2.0


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def told(monkeypatch: pytest.MonkeyPatch, recorded: Iterable[PairKey] = ()) -> list[tuple[float, float]]:
    """(seconds that the view promised, seconds that it then took) of every pair that was missing."""
    clock, out, recorded = Clock(), io.StringIO(), set(recorded)
    monkeypatch.setattr("orchestrator.output.progress.Pace", lambda characters: Pace(characters, clock))
    view = View(Console(file=out, width=200), PLAN, recorded)
    ends, startup = [], -1
    for key in (key for key in pair_keys(PLAN) if key not in recorded):
        if key.startup != startup:
            view.begin(key.startup)
            clock.now_s += START_S
        clock.now_s += PAIR_S
        startup = key.startup
        request = SimpleNamespace(rounds=(), sched_ns=0, end_ns=int(PAIR_S / 2 * 1e9), startup=startup)
        view.requests([request, request])  # type: ignore[list-item]  # only its times are read
        view.pair(Pair("c", key, 1, Exactness.DRAFT_WIDTH, None, None, 0.0, 0.0, True, ()))
        ends.append(clock.now_s)
    said = [float(seconds) for seconds in re.findall(r"about (\d+) s left", out.getvalue())]
    return list(zip(said, [ends[-1] - end for end in ends], strict=True))


def test_the_time_left_is_right_from_the_first_pair_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch)
    assert len(found) == 24 and found[0][1] == 2 * START_S + 23 * PAIR_S
    assert all(said == pytest.approx(took, abs=0.51) for said, took in found), found


def test_after_a_resume_only_what_is_missing_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [key for key in pair_keys(PLAN) if key.startup == 1]
    found = told(monkeypatch, [*whole, pair_keys(PLAN)[0]])
    assert len(found) == 15 and all(said == pytest.approx(took, abs=0.51) for said, took in found), found


def test_side_by_side_every_startup_has_its_own_clock_and_the_work_is_shared() -> None:
    clock = Clock()
    pace = Pace({}, clock)
    keys = [PairKey(startup, "f", 1, repeat) for startup in range(8) for repeat in range(4)]
    for startup in range(4):
        pace.begin(startup)
    clock.now_s += START_S + PAIR_S
    for startup in range(4):
        pace.pair(PairKey(startup, "f", 1, 0), PAIR_S)
    missing = [key for key in keys if key.startup > 3 or key.repeat]
    assert pace.left(missing, at_once=4) == Left((28 * PAIR_S + 4 * START_S) / 4)
    clock.now_s += PAIR_S
    for startup in range(4):
        pace.pair(PairKey(startup, "f", 1, 1), PAIR_S)
    missing = [key for key in keys if key.startup < 4 and key.repeat > 1]
    assert pace.left(missing, at_once=4) == Left(2 * PAIR_S)  # the gaps between two startups' pairs say nothing


# A curve on an H200, seconds: before a startup's first pair; a length's first pair, and each of its others.
OPENING_S, CURVE_S = 23.0, {"1024": (0.4, 0.4), "16384": (2.8, 0.5), "131072": (19.0, 0.7), "261888": (45.5, 0.9)}
CURVE = [PairKey(s, name, 1, repeat) for s in range(3) for name in CURVE_S for repeat in range(2)]


def test_a_curve_has_a_pace_for_each_length_and_the_least_until_the_longest_was_seen() -> None:
    clock = Clock()
    pace = Pace({name: 7 * int(name) for name in CURVE_S}, clock)
    ends, told = [], []
    for at, key in enumerate(CURVE):
        if at % 8 == 0:
            pace.begin(key.startup)
            clock.now_s += OPENING_S
        clock.now_s += CURVE_S[key.fixture][key.repeat]
        pace.pair(key, CURVE_S[key.fixture][1])
        ends.append(clock.now_s)
        told.append(pace.left(CURVE[at + 1 :]))
    took = [ends[-1] - end for end in ends]
    assert [left.at_least for left in told] == [True] * 6 + [False] * 18
    assert all(left.seconds <= took_s for left, took_s in zip(told[:6], took, strict=False))
    assert all(left.seconds == pytest.approx(took_s) for left, took_s in list(zip(told, took, strict=True))[7:])


def test_short_prompts_are_waited_for_alike() -> None:
    pace = Pace({"f": 40, "g": LONG_CHARACTERS, "h": LONG_CHARACTERS + 1}, Clock())
    pace.begin(0)
    pace.pair(PairKey(0, "f", 1, 0), 1.0)
    assert [pace.left([PairKey(0, name, 1, 0)]).at_least for name in ("f", "g", "h")] == [False, False, True]


def test_words() -> None:
    assert in_words(119.4) == "about 119 s left" and in_words(600) == "about 10 min left"
    assert in_words(66, at_least=True) == "at least 66 s left, longer prompts are to come"

"""The hammer finds a launch that is only usually right, and sheets and crews keep what workers said."""

from __future__ import annotations

import argparse
import io
import json
import sys
from dataclasses import replace

import pytest
import torch

from kernels.checking import crew, hammer
from kernels.checking.cases import cases_of, hammered_of, sanitized_of
from kernels.checking.sheet import Sheet, Subject, line_of
from kernels.operators import OPERATORS, operator


@pytest.fixture
def sort():
    return operator("selection").schedule("sort")


@pytest.fixture
def trial(monkeypatch):
    """A problem on the CPU, where nothing has to be waited for and a graph is a call."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(
        hammer, "replayed", lambda trial, s, want, wrong, turns: lambda: sum(t(trial, s, want, wrong) for t in turns)
    )
    return cases_of(operator("selection"), "cpu")[0].make("cpu")


def rarely_wrong(schedule, turn: int):
    """The schedule, but launch `turn` swaps two candidates."""
    made = []

    def run(logits, k):
        got = schedule.run(logits, k)
        made.append(got)
        if len(made) == turn:
            got.ids[0, :2] = got.ids[0, :2].flip(0)
        return got

    return replace(schedule, run=run)


def test_a_sound_schedule_passes_every_way(trial, sort):
    found = list(hammer.findings(sort, trial, 50))
    assert [finding.check for finding in found] == ["hammer/eager", "hammer/chain", "hammer/graph"]
    assert all(finding.passed and finding.figures["launches"] >= 50 for finding in found)


@pytest.mark.parametrize(("turn", "way"), [(30, 0), (70, 1), (140, 2)])
def test_one_wrong_launch_is_found(trial, sort, turn, way):
    found = list(hammer.findings(rarely_wrong(sort, turn), trial, 50))
    assert [finding.passed for finding in found] == [index != way for index in range(3)]
    assert "bytes differ in" in found[way].message


def test_what_keeps_state_is_not_chained(trial, sort):
    trial.keeps_state = True
    assert [finding.check for finding in hammer.findings(sort, trial, 10)] == ["hammer/eager", "hammer/graph"]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_sanitized_and_hammered_problems_are_gated_ones(op):
    gated = {case.id for case in cases_of(op, "cuda")}
    for cases in (sanitized_of(op), hammered_of(op)):
        assert cases and {case.id for case in cases} <= gated


def test_a_sanitizer_sees_every_length_of_attention():
    lengths = {case.length for case in cases_of(operator("attention"), "cuda")}
    assert {case.length for case in sanitized_of(operator("attention"))} == lengths


@pytest.fixture
def subject(sort):
    return Subject(operator("selection"), sort, "cpu", "", "host")


def options(limit_s: float) -> argparse.Namespace:
    return argparse.Namespace(gate=["contract"], device="cpu", cases="", launches=1, limit_s=limit_s)


def told_by(monkeypatch, subject, body: str, limit_s: float = 20):
    """The lines of a worker that runs `body` with the path of its sheet as argument."""

    def command_of(subject, options, out):
        return [sys.executable, "-c", body, str(out)]

    monkeypatch.setattr(crew, "command_of", command_of)
    return crew.worked(subject, options(limit_s))


def test_what_a_dying_worker_wrote_counts_and_its_death_is_held(monkeypatch, subject):
    sheet = Sheet(io.StringIO())
    sheet.write(line_of(subject, "contract", "bytes/live", "one", "passed", "", {}))
    line = json.dumps(sheet.out.getvalue())
    found = told_by(monkeypatch, subject, f"import os, sys; open(sys.argv[1], 'w').write({line}); os._exit(139)")
    assert [line.status for line in found] == ["passed", "held"]
    assert "exit 139" in found[1].message


@pytest.mark.parametrize(
    ("body", "limit_s", "words"),
    [("import time; time.sleep(30)", 0.3, "not finished within"), ("import sys; sys.exit(2)", 20, "exit 2")],
)
def test_a_late_or_refused_worker_is_held(monkeypatch, subject, body, limit_s, words):
    found = told_by(monkeypatch, subject, body, limit_s)
    assert [line.status for line in found] == ["held"] and words in found[0].message


def test_a_crew_gives_lines_in_the_order_of_work(subject):
    line = line_of(subject, "contract", "first", "one", "passed", "", {})
    with crew.Crew(2) as hands:
        hands.take(lambda: [line])
        hands.take(lambda: [replace(line, check="second")])
        assert [line.check for line in hands.lines()] == ["first", "second"]

"""Freezing runs published solutions: a task whose two sets of tests no program passes is left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.corpora.case import Case
from campaigns.corpora.freezing import Recipe, freeze
from campaigns.corpora.readers import mbpp
from campaigns.corpora.source import Source
from campaigns.corpora.templates import DEFAULT
from campaigns.errors import WorldError
from campaigns.scorers.execution import Job, Outcome, TestResult
from orchestrator.scoring.proving import SolutionRuns
from orchestrator.scoring.sandbox import Sandbox

# each as MBPP+ changed a real one: (solution, assert) as published first, (solution, assert) of the enhanced set
TASKS = {
    11: (("def f(a): return a", "assert f(2) == 2"), ("def f(a): return a", "assert f(3) == 3")),
    57: (("def f(a, n): return a", "assert f(2, 1) == 2"), ("def f(a): return a", "assert f(3) == 3")),
    16: (("def f(a): return 'Found'", "assert f(2) == 'Found'"), ("def f(a): return True", "assert f(3) is True")),
    58: (("def f(a): return a", "assert f(2) == 2"), ("def g(a): return a", "assert g(3) == 3")),
    66: (("def f(a): return 2", "assert f(2) == 2"), ("def f(a): return a", "assert f(3) == 3")),
    99: (("def f(a): return 1", "assert f(2) == 2"), ("", "")),
}


def files(folder: Path) -> dict[str, list[Path]]:
    original = [
        {"task_id": task, "text": "?", "code": code, "test_list": [test], "test_setup_code": ""}
        for task, ((code, test), _) in TASKS.items()
    ]
    plus = [{"task_id": task, "code": code, "test": test} for task, (_, (code, test)) in TASKS.items() if test]
    for name, rows in (("mbpp", original), ("mbppplus", plus)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {name: [folder / name] for name in ("mbpp", "mbppplus")}


def test_cases_that_no_program_passes_are_left_out(tmp_path: Path, box: Sandbox) -> None:
    told: list[str] = []
    corpus = freeze(Recipe(files(tmp_path), mix={"mbpp": 2}), prover=SolutionRuns(box, told.append))
    assert {case.id for case in corpus.cases} == {"mbpp/11", "mbpp/66"}, "the corrected solution of 66 passes both"
    everything = {f"mbpp/{task}" for task in TASKS}
    assert set(told) <= everything and {"mbpp/11", "mbpp/66"} <= set(told)
    assert set(corpus.header["left_out"]) <= everything - {"mbpp/11", "mbpp/66"} and corpus.header["left_out"]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    sources = {name: [Source.open(path) for path in paths] for name, paths in files(tmp_path).items()}
    return mbpp.read(sources["mbpp"], sources["mbppplus"], DEFAULT)[0]


@pytest.mark.parametrize("outcome", [Outcome((TestResult("timeout"),)), Outcome((), broke="memory")])
def test_a_slow_host_proves_nothing(case: Case, outcome: Outcome) -> None:
    """A case that a busy host leaves out would give another corpus there."""
    with pytest.raises(WorldError, match="mbpp/11: a published solution reached a limit under mbpp/original"):
        SolutionRuns(lambda job: outcome)(case, ["def f(a): return a"])


def test_one_solution_that_is_too_slow_does_not_matter_beside_one_that_passes(case: Case) -> None:
    ran: list[str] = []

    def run(job: Job) -> Outcome:
        ran.append(job.source)
        return Outcome((TestResult("timeout" if "slow" in job.source else "passed"),))

    assert SolutionRuns(run)(case, ["slow", "fast"]) and SolutionRuns(run)(case, ["fast", "slow"])
    assert ran[0] == "fast\n", "the corrected one stands last and runs first"


def test_ineligible_sets_prove_nothing_and_need_no_proof(case: Case) -> None:
    plain, plus = case.tests
    only_plain = (plain, replace(plus, program={}, ineligible="none"))
    assert SolutionRuns(lambda job: Outcome((TestResult("passed"),)))(replace(case, tests=only_plain), ["x"])

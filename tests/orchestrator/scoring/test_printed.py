"""What a program printed against what was wanted: one tolerance for printed numbers and for results of calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.corpora.embedded import FOLDER
from campaigns.corpora.readers import livecodebench
from campaigns.corpora.source import Source
from campaigns.corpora.templates import DEFAULT
from campaigns.scorers.execution import Job
from orchestrator.scoring.confined.stdout import same_output
from orchestrator.scoring.sandbox import Sandbox


@pytest.mark.parametrize(
    ("printed", "wanted", "relative", "same"),
    [
        ("0.333333", "0.333333333333", 0.0, True),
        ("0.3333", "0.333333333333", 0.0, False),
        ("1.16667\n2", "1.166666666666667\n2", 0.0, True),
        ("1.50", "1.5", 0.0, True),
        ("3", "3.0", 0.0, True),
        ("3.000001", "3", 0.0, False),
        ("3.0", "3", 0.0, True),
        ("1000000.4", "1000000.5", 0.0, False),
        ("1000000.4", "1000000.5", 1e-6, True),
        ("0.33333", "0.333333333333", 1e-6, False),
        ("0.333333", "0.333333333333", 1e-6, True),
        ("0.5 0.25", "0.5", 0.0, False),
        ("nan", "0.5", 0.0, False),
        ("inf", "0.5", 1e-6, False),
        ("sNaN", "0.5", 0.0, False),
        ("yes 0.5", "yes 0.500000001", 0.0, False),
        ("1e400000", "0.5", 1e-6, False),
    ],
)
def test_printed_numbers_have_the_problems_tolerance(printed: str, wanted: str, relative: float, same: bool) -> None:
    assert same_output(printed, wanted, relative) is same


@pytest.mark.parametrize(
    ("sentence", "relative"),
    [
        ("if the absolute or relative error from the true solution does not exceed 10^{-8}.", 1e-8),
        ("when its relative or absolute error is at most\n10^{-6}.", 1e-6),
        ("the relative order of all meetings stays. 10^{-6} is small.", None),
        ("", None),
    ],
)
def test_the_error_that_a_problem_states_reaches_its_judge(
    sentence: str, relative: float | None, tmp_path: Path, box: Sandbox
) -> None:
    row = json.loads((FOLDER / "livecodebench.jsonl").read_text().splitlines()[0])
    tests = json.dumps([{"input": "", "output": "1000.00000001", "testtype": "stdin"}])
    row |= {"question_content": sentence, "public_test_cases": tests, "private_test_cases": ""}
    (tmp_path / "l").write_text(json.dumps(row))
    (case,) = livecodebench.read([Source.open(tmp_path / "l")], DEFAULT)
    program = case.tests[0].program
    assert program.get("relative_error") == relative
    assert box(Job(program, "print(1000.000015)")).passed is (relative == 1e-6), "else 1e-5 of 1000, and this is more"

"""The embedded problems are right: every answer is computed again, independently of the text that states it."""

from __future__ import annotations

import json
import re
from fractions import Fraction  # noqa: F401
from itertools import combinations, count, permutations  # noqa: F401  # names that checks may use
from math import gcd, isqrt, lcm  # noqa: F401
from typing import Any

import pytest

from campaigns.corpora.embedded import FOLDER
from campaigns.scorers.equivalence import Equal, equivalent


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", rows("gsm8k"), ids=lambda row: row["question"][:30])
def test_word_problems_compute_what_they_say(row: dict[str, str]) -> None:
    steps = re.findall(r"<<([^=<>]+)=([\d.]+)>>([\d.]*\d)", row["answer"])
    assert steps and row["answer"].count("<<") == len(steps)
    for expression, value, written in steps:
        assert eval(expression) == float(value) and value == written
    assert row["answer"].endswith(f"#### {steps[-1][1]}")


def value_of(check: str) -> Any:
    import sympy  # half a second of imports, as in the other files that look into a library of their own

    x = sympy.symbols("x")
    names = {"x": x, "expand": sympy.expand, "factor": sympy.factor, "diff": sympy.diff, "sqrt": sympy.sqrt}
    return eval(check, {**globals(), **names, "Integer": sympy.Integer})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("row", rows("math500"), ids=lambda row: row["unique_id"])
def test_algebra_problems_have_checked_answers(row: dict[str, str]) -> None:
    value = value_of(row["check"])
    import sympy

    text = sympy.latex(value) if isinstance(value, sympy.Basic) else str(value)
    assert equivalent(row["answer"], text) is Equal.YES, (row["problem"], text)
    assert row["solution"].count("\\boxed{") == 1 and f"\\boxed{{{row['answer']}}}" in row["solution"]


def test_no_problem_stands_twice() -> None:
    for name, field in (("gsm8k", "question"), ("math500", "problem"), ("humaneval", "entry_point"), ("mbpp", "text")):
        texts = [row[field] for row in rows(name)]
        assert len(texts) == len(set(texts)) == 32

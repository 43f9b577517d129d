"""MBPP, test split (task ids 11-510), with EvalPlus's MBPP+ as a second denominator.

The names that a test may call come from the reference solution, so a wrong answer cannot smuggle in others.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from campaigns.corpora.case import Case, TestSet
from campaigns.corpora.readers import evalplus
from campaigns.corpora.readers.humaneval import LIMITS
from campaigns.corpora.source import Source
from campaigns.corpora.templates import render
from campaigns.errors import UsageError
from campaigns.syntax import syntax_tree

TEST_SPLIT = range(11, 511)
UNUSABLE_PLUS = {
    255: "EvalPlus's inputs for this task ask for results of hundreds of megabytes",
    599: "the EvalPlus reference of this task sums ranges up to 1e8 for minutes",
    793: "EvalPlus has no further input for this task",
}


def read(
    sources: Sequence[Source], plus: Sequence[Source], templates: Mapping[str, str], name: str = "mbpp"
) -> list[Case]:
    enhanced = {task: rest for source in plus for task, rest in _plus_tests(source)}
    cases = [
        _case(source, index, enhanced if plus else None, templates, name)
        for source in sources
        for index in range(len(source.records))
        if source.need(index, task_id=int)[0] in TEST_SPLIT
    ]
    if not cases:
        raise UsageError(f"{name}: no record has a task id of the test split (11-510)")
    return cases


def _plus_tests(source: Source) -> list[tuple[int, tuple[str, list[str]]]]:
    evalplus.check_form(source)
    rows = [source.need(index, task_id=int, test=str) for index in range(len(source.records))]
    return [(task, (evalplus.mended(test), _names(source, index))) for index, (task, test) in enumerate(rows)]


def _case(
    source: Source,
    index: int,
    plus: Mapping[int, tuple[str, list[str]]] | None,
    templates: Mapping[str, str],
    name: str,
) -> Case:
    task, text, setup, asserts = source.need(index, task_id=int, text=str, test_setup_code=str, test_list=list)
    if not all(isinstance(step, str) for step in asserts):
        raise source.wrong(index, "test_list holds something else than texts")
    tests = [TestSet("original", _program(_names(source, index), setup, asserts))]
    if plus is not None:
        tests.append(_plus_set(task, plus))
    prompt = render(templates, "mbpp", text=text, tests="\n".join(asserts))
    return Case(
        id=f"{name}/{task}",
        dataset=name,
        source_sha256=source.sha256,
        record_index=index,
        messages=({"role": "user", "content": prompt},),
        tests=tuple(tests),
        limits=LIMITS,
    )


def _plus_set(task: int, plus: Mapping[int, tuple[str, list[str]]]) -> TestSet:
    reason = UNUSABLE_PLUS.get(task, "" if task in plus else "EvalPlus has no contract for this task")
    if reason:
        return TestSet("evalplus", ineligible=reason)
    script, names = plus[task]
    return TestSet("evalplus", _program(names, "", [script]))


def _names(source: Source, index: int) -> list[str]:
    (code,) = source.need(index, code=str)
    try:
        return defined_names(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise source.wrong(index, f"the code is no Python ({error})") from error


def defined_names(code: str) -> list[str]:
    """Functions and classes at the top level of a reference solution, in their order."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    with warnings.catch_warnings(action="ignore"):  # published solutions have invalid escapes
        body = syntax_tree(code).body
    return list(dict.fromkeys(node.name for node in body if isinstance(node, kinds)))


def _program(names: list[str], setup: str, steps: list[str]) -> dict[str, Any]:
    """What the tests call is asked of an answer; helpers that only the reference has are not."""
    words = set(re.findall(r"\w+", "\n".join([setup, *steps])))
    # test_setup_code builds trees out of the answer's own classes, so it runs behind the binding, as a step would
    return {
        "kind": "steps",
        "prelude": "",
        "setup": setup,
        "bind": {name: name for name in names if name in words},
        "steps": list(steps),
    }

"""LiveCodeBench: programs on standard input (AtCoder) and methods of a class `Solution` (LeetCode).

Three kinds of tests, three names: `livecodebench` needs the official private tests, `livecodebench-public` is what
remains without them, `leetcodedataset` are the generated tests of newfacade's LeetCodeDataset, joined by slug.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from campaigns.corpora.case import Case, TestSet
from campaigns.corpora.readers.private_tests import plain, unpack
from campaigns.corpora.source import Source
from campaigns.corpora.templates import render
from campaigns.errors import UsageError

# Published limits assume a fast host: twice the official 6 s of each program, and for methods, whose tests share one
# process, five times that.
LIMITS = {"cpu_s": 12.0, "wall_s": 300.0}
METHOD_LIMITS = {"cpu_s": 60.0, "wall_s": 300.0}

# Answers take names for granted that the official runner provides: all public ones of these modules, in this order, so
# that later ones win, and the modules themselves.
_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
PRELUDE = (
    "".join(f"from {name} import *\n" for name in (*_MODULES, "builtins", "typing"))
    + f"import {', '.join(_MODULES)}\n"
    + "sys.setrecursionlimit(50_000)\nsys.set_int_max_str_digits(50_000)\n"
)
# How a problem for programs states what its checker allows: AtCoder's sentence, whose bound is `10^{-6}`.
_ERROR = re.compile(
    r"(?:absolute or relative|relative or absolute) error[^.]{0,120}?10\s*\^\s*\{?\s*-\s*(\d+)", re.DOTALL
)
# Tuples count as lists. The official runner compares exactly and so refuses 7/6 where 1.16667 is wanted and the
# problem accepts 1e-5; numbers with a fraction are compared as such problems say.
SAME = """def _same(out, exp):
    if isinstance(exp, (list, tuple)):
        return isinstance(out, (list, tuple)) and len(out) == len(exp) and all(map(_same, out, exp))
    if isinstance(exp, float):
        return type(out) in (int, float) and abs(out - exp) <= 1e-5
    return out == exp
"""


def read(sources: Sequence[Source], templates: Mapping[str, str], name: str = "livecodebench") -> list[Case]:
    """Cases of all problem files; files of LeetCodeDataset among `sources` give hidden tests instead of cases."""
    problems = [source for source in sources if "question_content" in source.records[0]]
    hidden = _by_slug(source for source in sources if "question_content" not in source.records[0])
    if not problems:
        raise UsageError(f"{name}: none of the files holds problems (records with question_content)")
    return [
        _case(source, index, hidden, templates, name) for source in problems for index in range(len(source.records))
    ]


def _by_slug(sources: Any) -> dict[str, tuple[str, str, str]]:
    fields = {"task_id": str, "prompt": str, "test": str, "entry_point": str}
    rows = [source.need(index, **fields) for source in sources for index in range(len(source.records))]
    return {slug: (prompt, test, entry) for slug, prompt, test, entry in rows}


def _case(
    source: Source,
    index: int,
    hidden: Mapping[str, tuple[str, str, str]],
    templates: Mapping[str, str],
    name: str,
) -> Case:
    question, title, content = source.need(index, question_id=str, question_title=str, question_content=str)
    (starter,) = source.need(index, starter_code=str)
    tests = [_official(source, index)]
    if title in hidden:
        tests.append(TestSet("leetcodedataset", _hidden_program(*hidden[title])))
    template = "livecodebench-functional" if starter else "livecodebench-stdin"
    extra = {"starter": starter.rstrip()} if starter else {}
    return Case(
        id=f"{name}/{question}",
        dataset=name,
        source_sha256=source.sha256,
        record_index=index,
        messages=({"role": "user", "content": render(templates, template, problem=content, **extra)},),
        tests=tuple(tests),
        limits=METHOD_LIMITS if starter else LIMITS,
    )


def _official(source: Source, index: int) -> TestSet:
    """The tests that come with the problem: named after the private ones, or `livecodebench-public` without any."""
    public_text, metadata = source.need(index, public_test_cases=str, metadata=str)
    where, packed = source.at(index), source.records[index].get("private_test_cases") or ""
    if not isinstance(packed, str):
        raise source.wrong(index, "field 'private_test_cases' is no text")
    public, private = plain(where, public_text), unpack(where, packed)
    name = _private_name(source, index) if private else "livecodebench-public"
    try:
        function = json.loads(metadata).get("func_name") or ""
        return TestSet(name, _program(public + private, function) | _stated_error(source, index, function))
    except (ValueError, AttributeError, RecursionError) as error:
        raise source.wrong(index, f"metadata or the tests of its method hold no JSON ({error})") from error


def _stated_error(source: Source, index: int, function: str) -> dict[str, float]:
    """The absolute or relative error that a problem for programs allows; nothing where it states none."""
    found = _ERROR.search(source.records[index]["question_content"])
    return {"relative_error": 10.0 ** -int(found[1])} if found and not function else {}


def _private_name(source: Source, index: int) -> str:
    """Only the two judged platforms' tests are LiveCodeBench's own."""
    return "own" if source.records[index].get("platform") == "own" else "livecodebench"


def _program(tests: list[dict[str, str]], function: str) -> dict[str, Any]:
    if not function:
        pairs = [{"input": test["input"], "output": test["output"]} for test in tests]
        return {"kind": "stdin", "prelude": PRELUDE, "tests": pairs}
    steps = [_functional_step(test["input"], test["output"]) for test in tests]
    # the official runner takes a plain function, too
    return _steps_program(PRELUDE, SAME, f"Solution().{function} if 'Solution' in globals() else {function}", steps)


def _functional_step(arguments: str, output: str) -> str:
    """Arguments stand one JSON value a line."""
    values = ", ".join(repr(json.loads(line)) for line in arguments.split("\n"))
    return f"assert _same(candidate({values}), {json.loads(output)!r})"


def _hidden_program(prompt: str, test: str, entry: str) -> dict[str, Any]:
    return _steps_program(prompt, test, entry, ["check(candidate)"])


def _steps_program(prelude: str, setup: str, entry: str, steps: list[str]) -> dict[str, Any]:
    return {"kind": "steps", "prelude": prelude, "setup": setup, "bind": {"candidate": entry}, "steps": steps}

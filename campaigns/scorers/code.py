"""Code answers: what is run, what counts as passed, and under which name.

Code comes from the final answer only. A set of tests is passed when every result is strictly positive; LiveCodeBench's
negative codes are truthy in Python, and taking them for passes was a real defect of a published harness.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from campaigns.corpora.case import Case, TestSet
from campaigns.scorers.execution import Executor, Job, Limits, Outcome
from campaigns.scorers.verdict import Answer, Judged, Verdict

# indentation, fence, language, content
_FENCE = re.compile(
    r"^([ \t]*)(`{3,}+|~{3,}+)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*\2[ \t]*\r?$|\Z)", re.MULTILINE | re.DOTALL
)
_PYTHON = ("python", "py", "python3", "py3")
# LiveCodeBench's own codes: wrong answer, time limit, run-time error; 1 is a pass
_CODES = {"passed": 1, "failed": -2, "timeout": -3}
_RUN_TIME_ERROR = -4
_NAMED_ALONE = ("livecodebench", "livecodebench-public", "leetcodedataset")  # names that say whose tests they are


def score_code(case: Case, answer: Answer, run: Executor) -> list[Verdict]:
    """One verdict for each set of tests of the case: each is a denominator of its own."""
    return [_score_set(case, tests, answer, run) for tests in case.tests]


def _score_set(case: Case, tests: TestSet, answer: Answer, run: Executor) -> Verdict:
    scorer = tests.name if tests.name in _NAMED_ALONE else f"{case.dataset}/{tests.name}"
    if tests.ineligible:
        return Verdict(scorer, Judged.INELIGIBLE, {"reason": tests.ineligible})
    if answer.capped:
        return Verdict(scorer, Judged.CAPPED)
    source = extract_code(answer.final_text, _entry_names(tests))
    if not source.strip():
        return Verdict(scorer, Judged.FAILED, {"reason": "the final answer holds no code"})
    limits = Limits.of(case.limits)
    outcome = run(Job(tests.program, _whole(tests, source), limits))
    return Verdict(scorer, _judge(outcome), _details(outcome, limits))


def _judge(outcome: Outcome) -> Judged:
    if not outcome.broke and strictly_positive(codes(outcome)):
        return Judged.PASSED
    timeouts = outcome.broke == "timeout" or any(result.status == "timeout" for result in outcome.results)
    return Judged.TIMEOUT if timeouts else Judged.FAILED


def codes(outcome: Outcome) -> list[int]:
    """Results as LiveCodeBench writes them."""
    return [_CODES.get(result.status, _RUN_TIME_ERROR) for result in outcome.results]


def strictly_positive(results: Sequence[Any]) -> bool:
    """The official rule: there are results, and every one is greater than zero. Truth of a value is not enough."""
    return len(results) > 0 and all(result > 0 for result in results)


def _details(outcome: Outcome, limits: Limits) -> dict[str, Any]:
    return {
        "results": codes(outcome),
        "failures": [[n, r.status, r.detail] for n, r in enumerate(outcome.results) if r.status != "passed"][:5],
        "broke": outcome.broke,
        "limits": limits.to_json(),
        "sandbox": outcome.mode,
    }


def extract_code(text: str, names: Iterable[str] = ()) -> str:
    """The last fenced block: of those that define one of `names`, else of those marked as Python, else of all.

    Blocks of other languages are none, and a text without any block is code itself.
    """
    blocks = [(match[3].lower(), _outdented(match[4], match[1])) for match in _FENCE.finditer(text)]
    marked = [block for language, block in blocks if language in _PYTHON]
    usable = [block for language, block in blocks if language in ("", *_PYTHON)]
    defining = [block for block in usable if any(_defines(block, name) for name in names)]
    chosen = defining or marked or usable
    return chosen[-1] if chosen else text


def _outdented(block: str, indentation: str) -> str:
    """A block inside a list is indented with its fence."""
    return re.sub(rf"^[ \t]{{1,{len(indentation)}}}", "", block, flags=re.MULTILINE) if indentation else block


def _defines(block: str, name: str) -> bool:
    return re.search(rf"^[ \t]*(?:def|class)[ \t]+{re.escape(name)}\b", block, re.MULTILINE) is not None


def _entry_names(tests: TestSet) -> list[str]:
    """`Solution().method` is entered through `Solution`."""
    return [expression.partition("(")[0] for expression in tests.program.get("bind", {}).values()]


def _whole(tests: TestSet, source: str) -> str:
    """A bare continuation of the prompt, indented as a body, becomes a function again."""
    first = next((line for line in source.split("\n") if line.strip()), "")
    prelude = tests.program.get("prelude", "")
    return prelude + source if first[:1].isspace() and prelude.rstrip().endswith(('"""', "'''")) else source

"""Code answers: what is run, what counts as passed, and under which name.

Code comes from the final answer only. A set of tests is passed when every result is strictly positive; LiveCodeBench's
negative codes are truthy in Python, and taking them for passes was a real defect of a published harness.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from campaigns.corpora.case import Case, TestSet
from campaigns.scorers.execution import Executor, Job, Limits, Outcome
from campaigns.scorers.extraction import extract_code
from campaigns.scorers.verdict import Answer, Judged, Verdict

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
    code = extract_code(answer.final_text, _entry_names(tests), reads_stdin=tests.program.get("kind") == "stdin")
    if not code.source.strip():
        return Verdict(scorer, Judged.FAILED, {"reason": f"no code to run: {code.reason}"})
    limits = Limits.of(case.limits)
    outcome = run(Job(tests.program, _whole(tests, code.source), limits))
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


def _entry_names(tests: TestSet) -> list[str]:
    """`Solution().method` is entered through `Solution`."""
    return [expression.partition("(")[0] for expression in tests.program.get("bind", {}).values()]


def _whole(tests: TestSet, source: str) -> str:
    """A bare continuation of the prompt, indented as a body, becomes a function again."""
    first = next((line for line in source.split("\n") if line.strip()), "")
    prelude = tests.program.get("prelude", "")
    return prelude + source if first[:1].isspace() and prelude.rstrip().endswith(('"""', "'''")) else source

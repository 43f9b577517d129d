"""HumanEval, with EvalPlus's HumanEval+ as a second denominator.

The prompt (imports, helpers, signature) is run ahead of an answer on both sides of the sandbox: answers may rely on
its imports, and some tests call its helpers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from campaigns.corpora.case import Case, TestSet
from campaigns.corpora.readers import evalplus
from campaigns.corpora.source import Source
from campaigns.corpora.templates import render

LIMITS = {"cpu_s": 60.0, "wall_s": 300.0}
# HumanEval+ v0.1.10 writes `_poly(*candidate(*inp), inp)` there: a TypeError for every right answer.
DEFECTIVE_PLUS = {"HumanEval/32": "the EvalPlus test of this task raises TypeError for every answer"}


def read(
    sources: Sequence[Source], plus: Sequence[Source], templates: Mapping[str, str], name: str = "humaneval"
) -> list[Case]:
    enhanced = {task: test for source in plus for task, test in _plus_tests(source)}
    return [
        _case(source, index, enhanced if plus else None, templates, name)
        for source in sources
        for index in range(len(source.records))
    ]


def _plus_tests(source: Source) -> list[tuple[str, str]]:
    evalplus.check_form(source)
    rows = [source.need(index, task_id=str, test=str) for index in range(len(source.records))]
    return [(task, evalplus.mended(test)) for task, test in rows]


def _case(source: Source, index: int, plus: Mapping[str, str] | None, templates: Mapping[str, str], name: str) -> Case:
    task, prompt, entry, test = source.need(index, task_id=str, prompt=str, entry_point=str, test=str)
    tests = [TestSet("original", _program(prompt, entry, test))]
    if plus is not None:
        reason = DEFECTIVE_PLUS.get(task, "" if task in plus else "EvalPlus has no test for this task")
        tests.append(TestSet("evalplus", {} if reason else _program(prompt, entry, plus[task]), reason))
    return Case(
        id=f"{name}/{task.rpartition('/')[2]}",
        dataset=name,
        source_sha256=source.sha256,
        record_index=index,
        messages=({"role": "user", "content": render(templates, "humaneval", prompt=prompt)},),
        tests=tuple(tests),
        limits=LIMITS,
    )


def _program(prompt: str, entry: str, test: str) -> dict[str, object]:
    return {
        "kind": "steps",
        "prelude": prompt,
        "setup": test,
        "bind": {entry: entry, "candidate": entry},
        "steps": [f"check({entry})"],
    }

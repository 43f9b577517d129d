"""The process that scores texts: verdicts, and replacement of one that hangs or dies."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from campaigns.corpora.case import Case
from campaigns.errors import WorldError
from campaigns.scorers.verdict import Answer, Judged
from orchestrator.scoring import scorer
from orchestrator.scoring.sandbox import _is_alive, descendants
from orchestrator.scoring.scorer import ROOT, ScorerProcess

BACKTRACKING = "^(a|aa)+$"
ENDLESS = "a" * 60 + "!"


def case(**fields: Any) -> Case:
    return Case(**{"id": "x/0", "dataset": "x", "source_sha256": "", "record_index": 0, "messages": (), **fields})


def structured(schema: dict[str, Any]) -> Case:
    return case(response_format={"type": "json_schema", "json_schema": {"schema": schema}}, answer={})


HALF = case(answer="\\frac{1}{2}")


@pytest.mark.acceptance
def test_verdicts_hangs_and_deaths() -> None:
    with ScorerProcess(timeout_s=60) as score:
        right = score(HALF, Answer("\\boxed{0.5}"))
        assert right.outcome is Judged.PASSED and right.scorer == "x" and right.details["given"] == "0.5"
        assert score(HALF, Answer("\\boxed{0.6}")).outcome is Judged.FAILED
        first = score._process
        assert first is not None
        first.kill()
        first.wait()
        assert score(HALF, Answer("\\boxed{0.5}")).outcome is Judged.ERROR, "a dead process has no verdict"
        assert score(HALF, Answer("\\boxed{0.5}")).outcome is Judged.PASSED and score._process is not first
        score.timeout_s = 1.0
        for hanging in HANGING:
            assert score(*hanging).outcome is Judged.TIMEOUT, hanging
        score.timeout_s = 60.0
        assert score(HALF, Answer("\\boxed{1/2}")).outcome is Judged.PASSED
        last = score._process
    assert last is not None and last.poll() is not None, "nothing is left behind"


HANGING = [
    (structured({"type": "string", "pattern": BACKTRACKING}), Answer(f'"{ENDLESS}"')),
    (
        structured({"patternProperties": {BACKTRACKING: {"type": "null"}}}),
        Answer(f'{{"{ENDLESS}": 1}}'),
    ),
    (case(answer="1"), Answer("\\boxed{10^{10^{10}}}")),
]


def test_what_a_library_raises_is_an_error_and_the_process_goes_on() -> None:
    with ScorerProcess(timeout_s=60) as score:
        unheard_of = score(case(tools=({"function": {}},), answer={"calls": []}), Answer("[]", "[]"))
        assert unheard_of.outcome is Judged.ERROR and "KeyError" in unheard_of.details["reason"]
        first = score._process
        surrogate = score(structured({"type": "string"}), Answer('"\ud800 \\\\ud800"'))
        assert surrogate.outcome is Judged.PASSED and score._process is first


def test_a_process_that_cannot_start_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "MEMORY_BYTES", 1 << 20)
    with ScorerProcess() as score, pytest.raises(WorldError, match="did not start"):
        score(HALF, Answer("\\boxed{0.5}"))


@pytest.mark.acceptance
def test_a_process_that_hangs_dies_with_its_owner() -> None:
    script = (
        "from campaigns.corpora.case import Case\n"
        "from campaigns.scorers.verdict import Answer\n"
        "from orchestrator.scoring.scorer import ScorerProcess\n"
        "case = Case('x/0', 'x', '', 0, (), answer='1')\n"
        "with ScorerProcess(600) as score:\n"
        "    score(case, Answer('1'))\n"
        "    print('ready', flush=True)\n"
        "    score(case, Answer('\\\\boxed{10^{10^{10}}}'))\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "ready\n"
        (worker,) = descendants(owner.pid)
        time.sleep(0.5)
        assert _is_alive(worker), "it has an answer that takes for ever"
        owner.kill()
    deadline = time.monotonic() + 60
    while _is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(worker)

"""Every schedule of every operator on every problem of its device: what `kernels.checking` asks, one test each."""

from __future__ import annotations

import pytest
import torch

from kernels.checking import checks
from kernels.checking.cases import cases_of
from kernels.native import toolkit
from kernels.operators import OPERATORS


def asked(device: str):
    """(operator, schedule, problem) of a device; which of them a schedule takes, its guard says in the test."""
    return [
        pytest.param(op, schedule, case, id=f"{op.name}/{schedule.name}-{case.id}")
        for op in OPERATORS
        for schedule in op.schedules
        if schedule.machine is None or schedule.machine.device == device
        for case in cases_of(op, device)
    ]


def holds(op, schedule, trial) -> None:
    if refusal := schedule.refusal(trial.problem):
        pytest.skip(refusal.reason)
    assert [finding for finding in checks.findings(op, schedule, trial) if not finding.passed] == []


@pytest.mark.parametrize(("op", "schedule", "case"), asked("cpu"))
def test_on_a_cpu(op, schedule, case):
    holds(op, schedule, case.make("cpu"))


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_no_schedule_refuses_every_problem_of_its_device(op):
    """Above, a refusal skips, so a guard that takes nothing would go unseen. Hopper's are in `test_cuda_guards.py`."""
    natives = ("c++",) if toolkit.cxx() else ()  # without a compiler torch's schedules serve
    problems = [case.make("cpu").problem for case in cases_of(op, "cpu")]
    ours = [s for s in op.schedules if s.machine is None or s.machine.device == "cpu"]
    here = [s for s in ours if s.build is None or s.build.language in natives]
    assert [s.name for s in here if all(s.refusal(problem) for problem in problems)] == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("op", "schedule", "case"), asked("cuda"))
def test_on_a_gpu(op, schedule, case):
    holds(op, schedule, case.make("cuda"))

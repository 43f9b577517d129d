"""Selection: dense tie order, the probe, split ties, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.registry import select
from kernels.selection import OP, Problem, problem_of

CPU_NATIVE = ("cpu-scan", "cpu-scan32")

ON_CPU = [schedule for schedule in OP.schedules if not (schedule.build and schedule.build.language == "cuda")]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), min_size=3, max_size=90), st.data())
def test_dense_tie_order(row, data):
    k = data.draw(st.integers(1, len(row) - 1))
    want = sorted(range(len(row)), key=lambda i: (-row[i], i))[: k + 1]
    logits = torch.tensor([row])
    for schedule in OP.schedules:
        if schedule.refusal(problem_of(logits, k)) is None:
            got = schedule.run(logits, k)
            assert got.ids[0].tolist() == want, schedule.name
            assert got.values[0].tolist() == [row[i] for i in want]


@pytest.mark.parametrize("schedule", ON_CPU, ids=lambda schedule: schedule.name)
def test_the_probe_shows_a_tie_that_the_cut_splits(schedule):
    logits = torch.tensor([[5.0, 4.0, 4.0, 3.0, 4.0], [9.0, 8.0, 7.0, 6.0, 5.0]])
    if refusal := schedule.refusal(problem_of(logits, 2)):
        pytest.skip(refusal.reason)
    got = schedule.run(logits, 2)
    assert got.ids.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert (got.values[:, -1] == got.values[:, -2]).tolist() == [True, False]


GOOD = Problem(8, 1000, 20, arch="x86-64-v3")
REFUSALS = [
    (replace(GOOD, device="cuda", arch="sm_90"), "device 'cuda'"),
    (replace(GOOD, arch="aarch64"), "'aarch64'; only x86-64-v3"),
    (replace(GOOD, dtype="float16"), "logits are float16"),
    (replace(GOOD, k=257), "k is 257"),
]


@pytest.mark.parametrize("name", CPU_NATIVE)
@pytest.mark.parametrize(("problem", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_refuses_with_a_reason(name, problem, words):
    assert select(OP, GOOD, name).schedule.name == name
    chosen = select(OP, problem, name)
    assert chosen.schedule.name == "keys"
    assert words in chosen.refusals[0][1].reason

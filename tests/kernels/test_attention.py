"""Verify attention: E4M3 decoding, row independence, refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from kernels.attention import OP, Problem, problem_of
from kernels.checking import checks
from kernels.checking.cases.attention import AttentionTrial, Shape
from kernels.checking.compare import first_difference
from kernels.registry import select

CPU_NATIVE = ("cpu-scalar", "cpu-grouped")


def test_reference_is_softmax_attention():
    """The reference itself, against torch's own attention on gathered FP64 operands."""
    trial = AttentionTrial(Shape(4, 50, 6, 2, 16), "cpu")
    trial.set_state("live")
    q, k, v, table, lengths, scale = trial.operands()
    heads = (pages[table[:-1].long()].flatten(0, 1).double().repeat_interleave(3, 1) for pages in (k, v))
    tokens = [head[:50].transpose(0, 1) for head in heads]
    mask = torch.arange(tokens[0].shape[1])[None] < lengths[:, None]
    want = torch.nn.functional.scaled_dot_product_attention(
        q.double().transpose(0, 1), *tokens, attn_mask=mask, scale=scale
    ).transpose(0, 1)
    torch.testing.assert_close(OP.reference(*trial.operands()), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [schedule.name for schedule in OP.schedules])
def test_decodes_every_e4m3_byte_exactly(name):
    """One key per row and a softmax of one: the output is V itself, byte by byte of the format."""
    finite = [byte for byte in range(256) if byte & 0x7F != 0x7F]
    v = torch.tensor([*finite, 0, 0], dtype=torch.uint8).view(torch.float8_e4m3fn).view(8, 1, 1, 32)
    q, k = torch.zeros(1, 1, 32), torch.zeros(8, 1, 1, 32).to(torch.float8_e4m3fn)
    lengths = torch.ones(1, dtype=torch.int32)
    for page in range(8):
        table = torch.tensor([page], dtype=torch.int32)
        if refusal := OP.schedule(name).refusal(problem_of(q, k, v, table)):
            pytest.skip(refusal.reason)
        got = OP.schedule(name).run(q, k, v, table, lengths, 1.0)
        assert first_difference(got.flatten() + 0.0, v[page].float().flatten() + 0.0) is None


@pytest.mark.parametrize("name", CPU_NATIVE)
@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_an_e4m3_nan_stays_one(name, byte):
    v = torch.zeros(1, 1, 1, 32, dtype=torch.uint8)
    v[..., 5] = byte
    q, k, one = (
        torch.zeros(1, 1, 32),
        torch.zeros(1, 1, 1, 32).to(torch.float8_e4m3fn),
        torch.ones(1, dtype=torch.int32),
    )
    if refusal := OP.schedule(name).refusal(problem_of(q, k, k, one)):
        pytest.skip(refusal.reason)
    got = OP.schedule(name).run(q, k, v.view(torch.float8_e4m3fn), one * 0, one, 1.0)
    assert got.isnan().nonzero().tolist() == [[0, 0, 5]]


@pytest.mark.parametrize("name", CPU_NATIVE)
def test_a_row_does_not_depend_on_its_neighbours(name):
    trial = AttentionTrial(Shape(8, 133, 4, 2, 32), "cpu")
    trial.set_state("live")
    if refusal := OP.schedule(name).refusal(trial.problem):
        pytest.skip(refusal.reason)
    q, k, v, table, lengths, scale = trial.operands()
    run = OP.schedule(name).run
    alone = torch.cat([run(q[i : i + 1], k, v, table, lengths[i : i + 1], scale) for i in range(8)])
    assert first_difference(run(q, k, v, table, lengths, scale), alone) is None


@pytest.mark.parametrize("name", CPU_NATIVE)
def test_large_scores_do_not_overflow(name):
    trial = AttentionTrial(Shape(2, 90, 2, 1, 32), "cpu")
    trial.set_state("live")
    if refusal := OP.schedule(name).refusal(trial.problem):
        pytest.skip(refusal.reason)
    trial.q.mul_(200)
    got = OP.schedule(name).run(*trial.operands())
    assert checks.errors({"out": got}, trial.expected())["out"] < 1e-5


@pytest.mark.parametrize("name", [schedule.name for schedule in OP.schedules])
def test_a_nan_among_the_visible_keys_is_not_hidden(name):
    trial = AttentionTrial(Shape(2, 40, 2, 1, 32), "cpu")
    trial.set_state("live")
    if refusal := OP.schedule(name).refusal(trial.problem):
        pytest.skip(refusal.reason)
    trial.k[trial.table[0].long(), 3] = math.nan
    assert OP.schedule(name).run(*trial.operands()).isnan().any()


GOOD = Problem(8, 4, 2, 32, 16, 4, arch="x86-64-v3", k_strides=(1024, 64, 32, 1), v_strides=(1024, 64, 32, 1))
REFUSALS = [
    (replace(GOOD, device="cuda", arch="sm_90"), "device 'cuda'"),
    (replace(GOOD, arch="aarch64"), "'aarch64'; only x86-64-v3"),
    (replace(GOOD, q_dtype="float64"), "q is float64"),
    (replace(GOOD, kv_dtype="float8_e5m2"), "K and V are float8_e5m2"),
    (replace(GOOD, head_dim=20), "head dimension 20"),
    (replace(GOOD, head_dim=264), "head dimension 264"),
    (replace(GOOD, k_strides=(1024, 1, 32, 64)), "last axis"),
    (replace(GOOD, v_strides=(1024, 1, 32, 64)), "last axis"),
]


@pytest.mark.parametrize("name", CPU_NATIVE)
@pytest.mark.parametrize(("problem", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_refuses_with_a_reason(name, problem, words):
    assert select(OP, GOOD, name).schedule.name == name
    chosen = select(OP, problem, name)
    assert chosen.schedule.name == "gathered"
    assert words in chosen.refusals[0][1].reason

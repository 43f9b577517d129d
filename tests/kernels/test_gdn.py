"""GDN verification: chained selectors, retired slots, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.checking.cases.gdn import GdnTrial, Shape
from kernels.checking.compare import first_difference, rel_l2
from kernels.gdn import OP, Problem, State, problem_of
from kernels.registry import select

CPU_NATIVE = ("cpu-bv8", "cpu-bv2", "cpu-bv32")


def textbook(trial: GdnTrial) -> torch.Tensor:
    """Outputs by the definition, a scalar at a time, from an empty history and an empty state."""
    shape, layer = trial.shape, trial.layer
    keys = shape.key_heads * shape.key_dim
    inputs = torch.cat((torch.zeros(shape.width - 1, trial.qkv.shape[1]), trial.qkv)).double()
    outs = torch.zeros(shape.rows, shape.value_heads, shape.value_dim, dtype=torch.float64)
    states = torch.zeros(shape.value_heads, shape.key_dim, shape.value_dim, dtype=torch.float64)
    for row in range(shape.rows):
        x = torch.einsum("tc,ct->c", inputs[row : row + shape.width], layer.conv_weight.double())
        x = x / (1 + torch.exp(-x))
        for head in range(shape.value_heads):
            at = head // (shape.value_heads // shape.key_heads) * shape.key_dim
            q, k = x[at : at + shape.key_dim], x[keys + at : keys + at + shape.key_dim]
            q = q / torch.sqrt((q * q).sum() + 1e-6) / shape.key_dim**0.5
            k = k / torch.sqrt((k * k).sum() + 1e-6)
            v = x[2 * keys + head * shape.value_dim :][: shape.value_dim]
            step = torch.log(1 + torch.exp(trial.a[row, head].double() + layer.dt_bias[head].double()))
            decay = torch.exp(-torch.exp(layer.a_log[head].double()) * step)
            beta = 1 / (1 + torch.exp(-trial.b[row, head].double()))
            state = decay * states[head]
            state = state + torch.outer(k, beta * (v - state.T @ k))
            outs[row, head], states[head] = state.T @ q, state
    return outs


@pytest.mark.parametrize("schedule", OP.schedules, ids=lambda schedule: schedule.name)
def test_agrees_with_the_definition(schedule):
    trial = GdnTrial(Shape(6, 2, 4, 16, 8), "cpu")
    if refusal := schedule.refusal(trial.problem):
        pytest.skip(refusal.reason)
    trial.state.pool.zero_()
    trial.state.window.zero_()
    got = schedule.run(trial.qkv, trial.a, trial.b, trial.layer, trial.state)
    assert rel_l2(got, textbook(trial)) < 1e-5


@pytest.mark.parametrize("schedule", OP.schedules, ids=lambda schedule: schedule.name)
@pytest.mark.parametrize("accepted", [1, 3, 8])
def test_the_next_run_continues_after_the_accepted_rows(schedule, accepted):
    """Rows 0..accepted-1 and then the rest through the selector, against all of them in a fresh request."""
    trial = GdnTrial(Shape(8, 2, 4, 16, 8), "cpu")
    if refusal := schedule.refusal(trial.problem):
        pytest.skip(refusal.reason)
    rows, state = torch.cat((trial.packed, trial.packed.flip(0))), trial.state

    def run(packed: torch.Tensor, own: State) -> torch.Tensor:
        channels, heads = trial.qkv.shape[1], trial.a.shape[1]
        parts = packed[:, :channels], packed[:, channels : channels + heads], packed[:, channels + heads :][:, :heads]
        return schedule.run(*parts, trial.layer, own)

    fresh = State(*(tensor.clone() for tensor in (state.window, state.pool, state.slot_table, state.selector)))
    run(rows[:8], state)
    state.selector.fill_(accepted)
    after = run(rows[8:11], state)
    run(rows[:accepted], fresh)
    fresh.selector.fill_(accepted)
    assert first_difference(after, run(rows[8:11], fresh)) is None


@pytest.mark.parametrize("name", CPU_NATIVE)
def test_convolution_weights_may_be_wider_than_the_activations(name):
    """As the runtime holds them: activations of 16 bits, FP32 weights of the same values, the same bytes."""
    trial = GdnTrial(Shape(5, 1, 2, 32, 32, "float16", row_pad=3), "cpu")
    schedule, wide = OP.schedule(name), replace(trial.layer, conv_weight=trial.layer.conv_weight.float())
    if refusal := schedule.refusal(trial.problem):
        pytest.skip(refusal.reason)
    outputs = []
    for layer in (trial.layer, wide):
        assert schedule.refusal(problem_of(trial.qkv, trial.a, trial.b, layer, trial.state)) is None
        trial.rewind()
        outputs.append({"out": schedule.run(trial.qkv, trial.a, trial.b, layer, trial.state), **trial.left_behind()})
    assert all(first_difference(outputs[1][name], outputs[0][name]) is None for name in outputs[0])


def test_a_padding_entry_leaves_slot_zero_alone():
    trial = GdnTrial(Shape(8, 2, 4, 16, 16, padded_slots=2), "cpu")
    trial.state.slot_table[:6] = torch.arange(1, 7, dtype=torch.int32)
    before = trial.state.pool[0].clone()
    for schedule in OP.schedules:
        if schedule.refusal(trial.problem) is None:
            schedule.run(trial.qkv, trial.a, trial.b, trial.layer, trial.state)
            assert first_difference(trial.state.pool[0], before) is None, schedule.name


GOOD = Problem(8, 2, 4, 16, 16, arch="x86-64-v3")
REFUSALS = [
    (replace(GOOD, device="cuda", arch="sm_90"), "device 'cuda'"),
    (replace(GOOD, arch="aarch64"), "'aarch64'; only x86-64-v3"),
    (replace(GOOD, dtype="float64"), "qkv is float64"),
    (replace(GOOD, weight_dtype="float64"), "convolution weight is float64"),
    (replace(GOOD, key_dim=12), "key dimension 12"),
    (replace(GOOD, key_dim=264), "key dimension 264"),
    (replace(GOOD, rows=17, table_slots=32), "17 rows"),
    (replace(GOOD, conv_width=9), "convolution width 9"),
]


@pytest.mark.parametrize("name", CPU_NATIVE)
@pytest.mark.parametrize(("problem", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_refuses_with_a_reason(name, problem, words):
    assert select(OP, GOOD, name).schedule.name == name
    chosen = select(OP, problem, name)
    assert chosen.schedule.name == "sequential"
    assert words in chosen.refusals[0][1].reason

"""The operators between projections: what transformers and dflash compute, guards on the CPU, what is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels import block_attention, block_conv, gated_norm, norm, output_gate, rotary
from kernels.checking.compare import rel_l2
from kernels.registry import select
from kernels.rotary import storing

EPS = 1e-6
CPU = {"device": "cpu", "arch": "x86-64-v3"}
NORM, GATED_NORM = norm.Problem(8, 5120, **CPU), gated_norm.Problem(8, 48, 128, **CPU)


@pytest.fixture(scope="module")
def theirs():
    """Imported by the one process that needs it."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    return modeling_qwen3_5


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def schedules(op):
    return [s for s in op.schedules if s.machine is None or s.machine.device == "cpu"]


@pytest.mark.parametrize("schedule", schedules(norm.OP), ids=lambda s: s.name)
def test_the_norm_is_that_of_transformers(schedule, theirs):
    module, x, delta = theirs.Qwen3_5RMSNorm(96, eps=EPS), normal(5, 96), normal(5, 96, seed=2)
    module.weight.data = normal(96, seed=3)
    s, y = schedule.run(x, delta, 1 + module.weight.data, EPS)
    assert torch.equal(s, x + delta)
    assert rel_l2(y, module(x + delta).detach()) < 1e-6


@pytest.mark.parametrize("schedule", schedules(gated_norm.OP), ids=lambda s: s.name)
def test_the_gated_norm_is_that_of_transformers(schedule, theirs):
    module, x, gate = theirs.Qwen3_5RMSNormGated(32, eps=EPS), normal(5, 3, 32), normal(5, 96, seed=2)
    module.weight.data = normal(32, seed=3)
    y = schedule.run(x, gate, module.weight.data, EPS)
    assert rel_l2(y.view(5, 3, 32), module(x, gate.view(5, 3, 32)).detach()) < 1e-6


def test_rotary_positions_are_those_of_transformers(theirs):
    heads = rotary.Heads(torch.ones(32), torch.ones(32), 0.0, 4, 2)
    qkv, angles = normal(7, 8 * 32), normal(7, 4, seed=2).repeat(1, 2)
    q, k, v = rotary.OP.schedule("separate").run(qkv, heads, (angles.cos()[:, None], angles.sin()[:, None]))
    unit = qkv.view(7, 8, 32)
    unit = unit / unit.square().mean(-1, keepdim=True).sqrt()
    want = theirs.apply_rotary_pos_emb(unit[None, :, :4], unit[None, :, 4:6], angles.cos()[None], angles.sin()[None], 2)
    assert rel_l2(q, want[0][0]) < 1e-6 and rel_l2(k, want[1][0]) < 1e-6
    assert torch.equal(v, qkv.view(7, 8, 32)[:, 6:])


def test_a_store_saturates_keeps_other_slots_and_returns_nothing():
    heads = rotary.Heads(torch.ones(8), torch.full((8,), 1e3), EPS, 2, 1)
    pages = [torch.zeros(2, 4, 1, 8).to(torch.float8_e4m3fn) for _ in range(2)]
    store = rotary.Store(pages[0], pages[1], torch.tensor([6, 1]))
    table = (torch.ones(2, 1, 4), torch.zeros(2, 1, 4))
    _, k, v = rotary.OP.schedule("separate").run(normal(2, 32) * 300, heads, table, store)
    assert k is None and v is None
    stored = torch.stack([page.float() for page in pages]).flatten(1, 2)
    assert float(stored.abs().max()) == storing.E4M3_MAX and bool(stored[:, [1, 6]].any(-1).all())
    assert not stored[:, [0, 2, 3, 4, 5, 7]].any()


def test_a_tap_beyond_the_block_sees_zeros():
    x, base = normal(1, 2, 8), torch.ones(4, 8)
    y = block_conv.OP.schedule("separate").run(x, torch.zeros(1, 2, 4, 2), base)
    assert torch.equal(y, torch.stack((x[:, 0], x[:, 1] + x[:, 0]), 1))


def test_block_attention_hides_what_the_mask_hides():
    q, k, v, seen = normal(3, 4, 8), normal(3, 2, 8, seed=2), normal(3, 2, 8, seed=3), normal(6, 2, 8, seed=4)
    mask = torch.cat((torch.zeros(3, 6), torch.eye(3)), 1).bool()
    out = block_attention.OP.schedule("separate").run(q, block_attention.Seen(seen, seen, mask), k, v, 1.0)
    assert rel_l2(out, v.repeat_interleave(2, 1)) < 1e-6


def test_the_output_gate_of_a_view_is_a_sigmoid():
    x, gate = normal(3, 4, 8), normal(3, 4, 16, seed=2)[..., 8:]
    y = output_gate.OP.schedule("separate").run(x, gate)
    assert rel_l2(y, (x / (1 + (-gate).exp())).flatten(1)) < 1e-6


@pytest.mark.parametrize(
    ("op", "problem", "schedule", "change", "words"),
    [
        (norm.OP, NORM, "cpu-rows", {"rows": 17}, "17 rows; 1 to 16"),
        (norm.OP, NORM, "cpu-rows", {"dtype": "float64"}, "x is float64"),
        (norm.OP, NORM, "cpu-rows", {"arch": "aarch64"}, "architecture 'aarch64'"),
        (gated_norm.OP, GATED_NORM, "cpu-heads", {"rows": 17}, "17 rows; 1 to 16"),
        (gated_norm.OP, GATED_NORM, "cpu-heads", {"dtype": "float64"}, "x is float64"),
        (gated_norm.OP, GATED_NORM, "cpu-heads", {"axes": 2}, "2 axes before the heads"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_a_cpu_schedule_refuses_with_a_reason(op, problem, schedule, change, words):
    assert select(op, problem, schedule).refusals == ()
    chosen = select(op, replace(problem, **change), schedule)
    assert chosen.schedule.name == op.default and words in chosen.refusals[0][1].reason

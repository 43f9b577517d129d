"""The checks themselves: each kind of broken schedule is caught, by the check meant for it, and named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.attention import OP as ATTENTION
from kernels.block_attention import OP as BLOCK_ATTENTION
from kernels.checking import checks
from kernels.checking.cases import attention as attention_cases
from kernels.checking.cases import gdn as gdn_cases
from kernels.checking.cases import publication as publication_cases
from kernels.checking.cases.attention import AttentionTrial
from kernels.checking.cases.attention import Shape as AttentionShape
from kernels.checking.cases.block_attention import BlockAttentionTrial
from kernels.checking.cases.gdn import GdnTrial
from kernels.checking.cases.gdn import Shape as GdnShape
from kernels.checking.cases.projection import ProjectionTrial
from kernels.checking.compare import first_difference, guarded, inside_poison, poisoned_allocations, rel_l2, same_bytes
from kernels.gdn import OP as GDN
from kernels.native import device
from kernels.projection import OP as PROJECTION
from kernels.publication import OP as PUBLICATION
from kernels.registry import Bitwise, Bound, Op, Schedule

DENSE = PROJECTION.schedule("dense")


def audit(run, contract=DENSE.contract, others=()) -> dict[str, str]:
    """Failed checks of a projection schedule on one problem, with their messages."""
    schedule = Schedule("planted", 1, contract, lambda problem: None, run)
    op = Op("projection", PROJECTION.reference, (DENSE, schedule, *others), "dense")
    trial = ProjectionTrial(5, 40, 64, "float32", "float32", 3, "cpu")
    return {f.check: f.message for f in checks.findings(op, schedule, trial) if not f.passed}


def into(x, weight):
    """A correct result in memory the checks can watch."""
    out = x.new_empty(x.shape[0], weight.n)
    return out.copy_(DENSE.run(x, weight))


def test_a_correct_schedule_passes():
    assert audit(into) == {} and audit(into, Bitwise("dense")) == {}


def test_an_element_never_written_is_seen():
    def forgets(x, weight):
        out = x.new_empty(x.shape[0], weight.n)
        out[:-1] = DENSE.run(x, weight)[:-1]
        return out

    found = audit(forgets)
    assert "relative L2 inf" in found["bound/live"]


@pytest.mark.parametrize("place", [-1, 0], ids=["before", "behind"])
def test_a_write_outside_the_output_is_seen(place):
    def strays(x, weight):
        out = into(x, weight)
        whole = out.untyped_storage().nbytes() // 4
        start = out.storage_offset() - 1 if place else out.storage_offset() + out.numel()
        assert 0 <= start < whole
        out.as_strided((1,), (1,), start).fill_(1.0)
        return out

    def watched(x, weight):
        # Outside the watch there is no room around an allocation to stray into.
        return strays(x, weight) if x.new_empty(1).storage_offset() else into(x, weight)

    assert "was written beyond its end or before its start" in audit(watched)["guards/live"]


def test_a_write_behind_scratch_memory_is_seen(monkeypatch):
    monkeypatch.setattr(device, "_made", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    def overrun(x, weight):
        room = device.scratch("planted", x.device, 48)
        assert not room.any(), "scratch memory is zero when it is made"
        room.as_strided((16,), (1,), room.storage_offset() + 48).fill_(1)
        return DENSE.run(x, weight)

    assert "was written beyond its end or before its start" in audit(overrun)["guards/live"]


def test_a_lost_rank_that_nobody_is_told_of_is_seen():
    trial = next(case for case in publication_cases.CPU if case.id.endswith("-lost")).make("cpu")
    native = PUBLICATION.schedule("cpu-shared")
    if refusal := native.refusal(trial.problem):
        pytest.skip(refusal.reason)
    trial.set_state("live")
    assert trial.untouched(trial.run(native)) is None
    trial.own.mail.fault[1] = 2
    assert trial.untouched({}) == "rank 2 is called lost in publication 2"


def test_one_wrong_bit_is_seen_and_placed():
    def off_by_a_bit(x, weight):
        out = into(x, weight)
        out.view(torch.int32)[3, 7] ^= 1
        return out

    found = audit(off_by_a_bit, Bitwise("dense"))
    assert found["bytes/live"].startswith("y: 1 of 200 differ, first at (3, 7): ")
    assert not any(check.startswith("bound") for check in found)


def test_an_error_above_the_bound_is_seen():
    found = audit(lambda x, weight: DENSE.run(x, weight) * 1.01)
    assert "above 1e-05" in found["bound/live"]
    lax = audit(lambda x, weight: DENSE.run(x, weight) * 1.01, replace(DENSE.contract, float32=None))
    assert "above 0.004" in lax["bound/live"]


def test_one_wrong_element_is_seen_where_nothing_is_rounded_to_16_bits():
    """Of 200 FP32 elements: far below a bound that has to leave room for a last rounding to BF16."""

    def astray(x, weight):
        out = into(x, weight)
        out[2, 3] *= 1.03
        return out

    assert audit(astray, replace(DENSE.contract, float32=None)) == {}
    assert "above 1e-05" in audit(astray)["bound/live"]


def test_an_error_above_the_parents_is_seen():
    found = audit(lambda x, weight: DENSE.run(x, weight) * (1 + 1e-5), Bound(4e-3, "", parent="dense"))
    assert "the parent's is" in found["fp64/live"] and "bound/live" not in found


def test_a_schedule_that_remembers_is_seen():
    seen = []

    def remembers(x, weight):
        seen.append(1)
        return DENSE.run(x, weight) + 1e-6 * len(seen)

    assert "restored-again" in " ".join(audit(remembers))


def test_a_second_run_that_gives_other_bytes_is_seen():
    runs = []

    def wavers(x, weight):
        runs.append(into(x, weight) * (1 + 1e-7 * (len(runs) % 7 == 5)))
        return runs[-1]

    found = audit(wavers)
    assert {check.partition("/")[0] for check in found} == {"twice"}


def attention_audit(run) -> dict[str, str]:
    schedule = replace(ATTENTION.schedule("gathered"), name="planted", run=run)
    op = Op("attention", ATTENTION.reference, (ATTENTION.schedule("gathered"), schedule), "gathered")
    trial = AttentionTrial(AttentionShape(4, 37, 4, 2, 32), "cpu")
    return {f.check: f.message for f in checks.findings(op, schedule, trial) if not f.passed}


def test_keys_and_values_that_are_remembered_are_seen():
    kept = {}

    def remembers(q, k, v, table, lengths, scale):
        k, v = (kept.setdefault(pages.data_ptr(), pages.clone()) for pages in (k, v))
        return ATTENTION.schedule("gathered").run(q, k, v, table, lengths, scale)

    assert set(attention_audit(remembers)) == {"bound/changed"}
    assert attention_audit(ATTENTION.schedule("gathered").run) == {}


def gdn_audit(run) -> dict[str, str]:
    schedule = replace(GDN.schedule("sequential"), name="planted", run=run)
    op = Op("gdn", GDN.reference, (GDN.schedule("sequential"), schedule), "sequential")
    trial = GdnTrial(GdnShape(4), "cpu")
    return {f.check: f.message for f in checks.findings(op, schedule, trial) if not f.passed}


def test_a_touched_slot_is_seen():
    def touches(qkv, a, b, layer, state):
        out = GDN.schedule("sequential").run(qkv, a, b, layer, state)
        stranger = next(slot for slot in range(len(state.pool)) if slot not in state.slot_table[: len(qkv)].tolist())
        state.pool[stranger, 0, 0, 0] += 1
        return out

    assert "does not own changed" in gdn_audit(touches)["untouched/live"]


def test_ignoring_the_selector_is_seen():
    def ignores(qkv, a, b, layer, state):
        kept = state.selector.clone()
        state.selector.fill_(1)
        out = GDN.schedule("sequential").run(qkv, a, b, layer, state)
        state.selector.copy_(kept)
        return out

    found = gdn_audit(ignores)
    assert "bound/selector-1" not in found and {f"bound/selector-{s}" for s in range(2, 9)} <= set(found)


def test_a_token_that_no_row_sees_is_not_even_multiplied_by_zero():
    def peeks(q, k, v, table, lengths, scale):
        out = ATTENTION.schedule("gathered").run(q, k, v, table, lengths, scale)
        return out + 0.0 * v[table[2].long(), 15].mean()  # token 47 of 37

    assert "relative L2 inf" in attention_audit(peeks)["bound/live"]


@pytest.mark.parametrize(("state", "eps"), [("faint", 1e-4), ("loud", None)])
def test_an_epsilon_and_a_bend_that_ordinary_operands_hide_are_seen(monkeypatch, state, eps):
    """Another epsilon of the norm, and a softplus that is cut at four."""
    from kernels.gdn import sequential

    right = sequential.unit

    def run(qkv, a, b, layer, state):
        cut = a if eps else a.clamp(max=4 - layer.dt_bias.max())
        with monkeypatch.context() as patched:
            if eps:
                patched.setattr(sequential, "unit", lambda x: x * (x.square().sum(-1, keepdim=True) + eps).rsqrt())
            return GDN.schedule("sequential").run(qkv, cut, b, layer, state)

    found = gdn_audit(run)
    assert f"bound/{state}" in found and sequential.unit is right


def test_comparing_bytes_tells_zeros_and_nans_apart():
    zeros, nan = torch.tensor([0.0, -0.0]), torch.tensor([float("nan")])
    assert not same_bytes(zeros, zeros.flip(0)) and same_bytes(nan, nan.clone())
    assert first_difference(zeros, zeros.flip(0)) == "2 of 2 differ, first at (0,): 0.0 instead of -0.0"
    assert "float32 (2,) instead of torch.float64 (2,)" in first_difference(zeros, zeros.double())


def test_relative_error_is_infinite_for_nan_and_absolute_for_zero():
    assert rel_l2(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
    assert rel_l2(torch.tensor([0.5]), torch.zeros(1)) == 0.5
    assert rel_l2(torch.tensor([1.5]), torch.ones(1)) == 0.5


def test_bits_dropped_behind_those_of_16_are_seen_where_a_schedule_promises_to_keep_them():
    """A probability of attention whose second half is of another one: 2^-12 of it is lost, a fifteenth more error."""
    trial = BlockAttentionTrial(5, (4, 2), 16, 37, "float16", "cpu")

    def audit(lost: float) -> dict[str, str]:
        def run(*operands):
            out = BLOCK_ATTENTION.reference(*operands).float()
            return (out * (1 + lost * torch.sign(torch.sin(1e4 * out)))).half()

        schedule = Schedule("planted", 1, Bound(2e-3, "", roundings=0.95), lambda problem: None, run)
        op = replace(BLOCK_ATTENTION, schedules=(*BLOCK_ATTENTION.schedules, schedule))
        return {f.check: f.message for f in checks.findings(op, schedule, trial) if not f.passed}

    assert audit(1e-7) == {}
    assert audit(2.0**-14).keys() == {"roundings/live"}


def test_poison_surrounds_and_fills():
    allocation = guarded((3, 5), torch.float16, "cpu")
    assert allocation.tensor.isnan().all() and allocation.intact()
    padded = inside_poison(torch.zeros(2, 3), pad=2)
    assert padded.stride(0) == 5 and padded.as_strided((2, 5), (5, 1)).isnan().sum() == 4
    before = torch.empty
    with poisoned_allocations() as made:
        assert torch.empty(2, 2).isnan().all() and torch.zeros(1).new_empty((3,), dtype=torch.int64).eq(-1).all()
    assert torch.empty is before and [tuple(a.tensor.shape) for a in made] == [(2, 2), (1,), (3,)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_values_halfway_show_ties_that_go_up_and_a_rounding_too_few(dtype):
    trial = gdn_cases.GdnTrial(gdn_cases.Shape(3, 1, 2, 16, 24, dtype), "cpu")
    trial.set_state("halfway")
    want = trial.expected()["out"].float().double()  # the norm's epsilon is less than FP32 can tell
    rounded = want.to(getattr(torch, dtype))
    beside = [torch.nextafter(rounded, rounded.new_tensor(end)).double() for end in (float("inf"), -float("inf"))]
    ties = torch.stack([want == (rounded.double() + other) / 2 for other in beside]).any(0)
    assert 0.5 < ties.double().mean() < 0.7, "every output behind the first of three rows lies halfway"
    assert checks.check_roundings({"out": rounded}, {"out": want}, 1.0, "halfway").passed
    up = torch.where(rounded.double() < want, torch.nextafter(rounded, rounded.new_tensor(float("inf"))), rounded)
    told = checks.check_roundings({"out": up}, {"out": want}, 1.0, "halfway")
    assert not told.passed and 0.3 < told.figures["shares"]["out"] < 0.8


def test_a_peak_left_out_of_the_maximum_overflows_at_every_place():
    shape = attention_cases.Shape(8, 129, 4, 2, 32)
    trial, seen = attention_cases.AttentionTrial(shape, "cpu"), set()
    for turn in range(2):
        trial.set_state(f"peaks-{turn}")
        tokens = torch.arange(shape.length)
        keys = trial.k[trial.table[tokens // 16].long(), tokens % 16].double().repeat_interleave(2, 1)
        scores = torch.einsum("rhd,thd->rht", trial.q.double(), keys) * trial.scale
        seen |= {(turn, int(place)) for place in scores.argmax(-1).flatten()}
        best = scores.topk(2, -1).values
        assert ((best[..., 0] - best[..., 1]) > 100).double().mean() > 0.9
    assert {place % 32 for _, place in seen} == set(range(32))

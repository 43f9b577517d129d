"""A shortlist leaves out nothing: units hold the codes, the bound holds, 10^5 rows have the exact head's candidates."""

from __future__ import annotations

import pytest
import torch

from kernels.checking import checks
from kernels.checking.cases.shortlist import LooseTrial, ShortlistTrial, head_of
from kernels.checking.cases.trial import Draw
from kernels.operators import operator
from kernels.shortlist import OP, Table, bound, problem_of
from kernels.shortlist.table import GROUP, ROWS, packed, quantised

BOUND = operator("shortlist").schedule("bound")
WANTED = 17


def exact(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.double() @ w.double().T).float()


def found(x: torch.Tensor, table: Table) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values and ids of the wanted logits in dense tie order, and how many logits of a row were read exactly."""
    logits = BOUND.run(x, table, WANTED, lambda rows: exact(rows, table.weight))
    best = logits.sort(dim=-1, descending=True, stable=True)
    return best.values[:, :WANTED], best.indices[:, :WANTED], logits.isfinite().sum(-1)


def same_as_exact(x: torch.Tensor, w: torch.Tensor) -> int:
    """How many logits were read exactly, of rows whose wanted logits are the exact head's in value and order."""
    values, ids, read = found(x, Table(w))
    want = exact(x, w).sort(dim=-1, descending=True, stable=True)
    assert values.equal(want.values[:, :WANTED])
    assert ids.equal(want.indices[:, :WANTED])
    return int(read.sum())


def rows_like_a_models(draw: Draw, count: int, k: int) -> torch.Tensor:
    """Rows of x in which a few channels are loud, as hidden states behind a norm are."""
    loud = 1 + 30 * (draw.integers(0, 40, k) == 0).float()
    return (draw.normal(count, k) * loud).half()


def test_units_hold_the_codes_where_a_lane_looks_for_them():
    w = head_of(Draw(1, "cpu"), 300, 512)
    made, (codes, scale, bound) = packed(w), quantised(w)
    assert made.units.shape == (3, 4, 16640)
    for row, k in ((0, 0), (9, 40), (77, 130), (130, 511), (299, 300)):
        block, inside, unit, channel = row // ROWS, row % ROWS, k // GROUP, k % GROUP
        warp, half, g = inside // 16, inside % 16 // 8, inside % 8
        pair, c, j = channel // 32, channel % 32 // 8, channel % 8
        byte = warp * 2048 + pair * 512 + (g * 4 + c) * 16 + half * 8 + j
        assert int(made.units[block, unit, byte]) - 128 == int(codes[row, k])
        stored = made.units[block, unit, ROWS * GROUP :].view(torch.bfloat16)[inside]
        assert float(stored) == float(scale[row, unit])
    assert made.bound[:300].equal(bound)
    assert not made.bound[300:].any()
    assert (made.units[2, :, : ROWS * GROUP].view(4, 8, 4, 8, 4, 2, 8)[:, 3:] == 128).all()  # rows behind the last


def test_a_bound_holds_where_x_points_along_the_error():
    """The worst x there is for a row: what its codes are wrong by."""
    w = head_of(Draw(2, "cpu"), 64, 256)
    codes, scale, bound = quantised(w)
    decoded = codes.double().unflatten(-1, (-1, GROUP)).mul(scale.double()[..., None]).flatten(-2)
    error = w.double() - decoded
    x = error / error.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    apart = ((w.double() - decoded) * x).sum(-1).abs()
    assert (apart <= bound).all()
    assert (apart[:-1] > 0.5 * bound[:-1]).all()  # nor is it idle


@pytest.mark.parametrize("apart", [-1, 1])
def test_a_neighbours_bound_loses_logits_where_every_other_row_is_loose(monkeypatch, apart):
    trial = LooseTrial(2, 301, 256, 5, 0, "cpu")
    assert BOUND.run(trial.x, trial.table, 5, trial.head).isfinite().sum(-1).min() >= 5
    assert not [finding for finding in checks.findings(OP, BOUND, trial) if not finding.passed]

    def shifted(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        codes, scale, bounds = quantised(w)
        return codes, scale, bounds.minimum(bounds.roll(apart))

    monkeypatch.setattr(bound, "quantised", shifted)
    failed = {finding.check for finding in checks.findings(OP, BOUND, trial) if not finding.passed}
    assert "bound/live" in failed


def test_a_launch_that_counts_wrongly_or_spares_nothing_is_seen():
    """As native schedules count: calls, rows of the weight, rows of x for which all of it was read."""
    trial = ShortlistTrial(2, 3000, 128, 5, 0, "cpu")
    trial._seen.logits = torch.zeros(2, 3000)

    def told(name: str, *counts: int) -> str | None:
        trial._seen.counts = (name, torch.tensor(counts))
        return trial.miscounted()

    assert told("rows", 1, 3000, 2) is None and told("codes", 1, 700, 0) is None
    for name, counts in (("rows", (1, 3000, 0)), ("rows", (1, 2999, 2)), ("codes", (1, 3000, 2)), ("codes", (1, 4, 0))):
        assert "counted as" in (told(name, *counts) or "")
    trial.set_state("zeros")
    assert told("codes", 1, 3000, 0) is None


def test_what_is_not_finite_is_always_read():
    w = head_of(Draw(3, "cpu"), 64, 128)
    w[5, 7], w[6, 8] = float("inf"), float("nan")
    assert quantised(w)[2][5:7].isinf().all()
    x = Draw(4, "cpu").normal(3, 128).half()
    x[1, 3] = float("nan")
    logits = BOUND.run(x, Table(w), WANTED, lambda rows: exact(rows, w))
    assert logits[1].isnan().all()  # the exact head
    assert logits[0, 6].isnan()
    assert logits[0, 5].isinf()


def test_ties_at_the_cut_are_whole():
    """A sampler whose top-k keeps ties has to see all of them."""
    w = head_of(Draw(5, "cpu"), 400, 128)
    x = Draw(6, "cpu").normal(2, 128).half()
    top = int(exact(x[:1], w).argmax())
    w[100:150] = w[top]  # fifty more than are wanted
    logits = BOUND.run(x, Table(w), WANTED, lambda rows: exact(rows, w))
    assert (logits[0] == logits[0].max()).sum() >= 50


def test_four_hundred_rows_have_the_candidates_of_the_exact_head():
    draw = Draw(7, "cpu")
    w = head_of(draw, 2000, 256)
    read = same_as_exact(rows_like_a_models(draw, 400, 256), w)
    assert read < 0.25 * 400 * 2000


@pytest.mark.acceptance
def test_a_hundred_thousand_rows_have_the_candidates_of_the_exact_head():
    draw = Draw(8, "cpu")
    w, read = head_of(draw, 3000, 256), 0
    for _ in range(50):
        read += same_as_exact(rows_like_a_models(draw, 2000, 256), w)
    assert read < 0.25 * 100_000 * 3000


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_hundred_thousand_rows_on_a_gpu():
    """At a quarter of the 27B target's head: the codes give the bytes of every row read."""
    draw = Draw(9, "cuda")
    table, op = Table(head_of(draw, 62080, 5120)), operator("shortlist")
    codes, rows = op.schedule("codes"), op.schedule("rows")
    different = torch.zeros(1, dtype=torch.int64, device="cuda")
    for _ in range(125):
        block = rows_like_a_models(draw, 800, 5120)
        for x in block.split(8):
            got, want = (s.run(x, table, WANTED, None).topk(WANTED + 4).values for s in (codes, rows))
            different += (got[:, :WANTED] != want[:, :WANTED]).sum()
    assert not int(different)
    calls, read, whole = table.codes().counts.tolist()
    assert (calls, whole) == (25_000, 100_000)  # all of it for `rows` alone
    assert (read - 12_500 * 62080) / 12_500 < 0.25 * 62080


def test_a_problem_is_of_shapes_alone():
    problem = problem_of(torch.empty(3, 256, dtype=torch.float16), Table(torch.empty(40, 256)), 5)
    assert (problem.m, problem.n, problem.k, problem.wanted, problem.weight_dtype) == (3, 40, 256, 5, "float32")

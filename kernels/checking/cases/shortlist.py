"""Shortlist problems: odd heights, rows said twice, rows without codes, quiet and loud x, the 27B target's head.

Outputs are the wanted logits and their ids. That all the others are what the head gives or -inf is asked on every run,
and that a native schedule has counted what it read.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.registry import Schedule
from kernels.shortlist import OP, Table, problem_of
from kernels.shortlist.table import GROUP, quantised


def head_of(draw: Draw, n: int, k: int) -> Tensor:
    """Rows of many sizes, every 37th said twice, so that ties are cut; the last one of zeros."""
    w = draw.normal(n, k, dtype=torch.float16, scale=k**-0.5)
    w[::5] *= 0.5
    w[7::37] = w[5::37][: len(w[7::37])]
    w[-1] = 0
    return w


class ShortlistTrial(Trial):
    states = ("live", "zeros", "loud", "one", "infinite", "changed", "restored")
    places = ("live", "zeros")

    spares = True  # whether live rows need less than half of a high head

    def __init__(self, m: int, n: int, k: int, wanted: int, pad: int, device: str) -> None:
        draw = Draw(m * 1_000_003 + n * 1_009 + k, device)
        live, head = self.operands(draw, m, n, k, wanted)
        one = torch.zeros(m, k, dtype=torch.float16, device=device)
        one[:, k // 3] = 1  # the bound of a whole row is far from what one channel can be wrong by
        infinite = live.clone()
        infinite[0, 1] = float("inf")
        self.values = {
            "live": live, "restored": live, "zeros": live * 0, "loud": live * 3000, "one": one,
            "infinite": infinite, "changed": live.flip(0).roll(7, -1),
        }  # fmt: skip
        self.table, self.wanted = Table(head), wanted
        self.x = inside_poison(live, pad)
        self.problem = problem_of(self.x, self.table, wanted)
        self._seen = SimpleNamespace(logits=None, counts=None)  # what a run gave is no operand
        self.state = "live"

    def operands(self, draw: Draw, m: int, n: int, k: int, wanted: int) -> tuple[Tensor, Tensor]:
        """x [M, K] and the head's weight [N, K]."""
        live = draw.normal(m, k, dtype=torch.float16)
        return live, head_of(draw, n, k)

    def set_state(self, state: str) -> None:
        self.state = state
        self.x.copy_(self.values[state])

    def head(self, x: Tensor) -> Tensor:
        weight = self.table.weight
        return torch.mm(x, weight.T, out_dtype=torch.float32) if x.is_cuda else x.float() @ weight.float().T

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.x, self.table, self.wanted, self.head)

    def run(self, schedule: Schedule) -> Outputs:
        before = self.table.codes().counts.clone() if schedule.build else None
        logits = self._seen.logits = self.launch(schedule)
        self._seen.counts = None if before is None else (schedule.name, self.table.codes().counts - before)
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        # A row of infinities and NaN has no order.
        none = (logits.isnan() | logits.isposinf()).any(-1, keepdim=True)
        values, ids = (part[:, : self.wanted].masked_fill(none, 0) for part in (values, ids))
        return {"values": values, "ids": ids}

    def expected(self) -> Outputs:
        none = ~self.x.isfinite().all(-1, keepdim=True)
        return {"values": OP.reference(self.x, self.table, self.wanted).masked_fill(none, 0)}

    def untouched(self, outputs: Outputs) -> str | None:
        """What of a row's other logits is neither what the weight gives nor -inf."""
        ordered = self.x.isfinite().all(-1)
        x, w = self.x[ordered].double(), self.table.weight.double()
        got, want = self._seen.logits[ordered].double(), x @ w.T
        far = (got - want).abs() > 1e-5 * x.norm(dim=-1, keepdim=True) * w.norm(dim=-1)
        wrong = int((far & (got != float("-inf"))).sum())
        return f"{wrong} logits are neither the head's nor -inf" if wrong else self.miscounted()

    def miscounted(self) -> str | None:
        """What is wrong with the calls, rows of the weight and whole rows of x that the last launch has counted."""
        if self._seen.counts is None:
            return None
        (name, counts), (m, n) = self._seen.counts, self._seen.logits.shape
        calls, read, whole = counts.tolist()
        most, wholes = n, {m} if name == "rows" else range(m + 1)
        if name == "codes" and self.spares and self.state == "live" and n >= 3000:
            most, wholes = n // 2, {0}
        if calls == 1 and (n if name == "rows" else self.wanted) <= read <= most and whole in wholes:
            return None
        return f"counted as {calls} calls that read {read} of {n} rows, and all of them for {whole} of {m} rows of x"


class LooseTrial(ShortlistTrial):
    """Neighbours of which one has exact codes and the other is as far from its own as x can make it.

    Rows with even numbers say the same pattern, x points along the error of its codes. The wanted logits are of other
    rows, between what the pattern gives and what its codes give: a bound that is not the row's own leaves them out.
    """

    spares = False

    def operands(self, draw: Draw, m: int, n: int, k: int, wanted: int) -> tuple[Tensor, Tensor]:
        pattern = draw.normal(k, dtype=torch.float16, scale=k**-0.5)
        codes, scale, _ = quantised(pattern[None])
        error = pattern.double() - (codes.double().view(-1, GROUP) * scale.double().view(-1, 1)).flatten()
        x = (error / -error.norm()).half()
        between = pattern.double() @ x.double() + 0.5 * error.norm()
        signs = torch.sign(x) * torch.sign(between)
        steps = 127 * 2.0**-13  # BF16 holds its 127th part
        far = (signs.double() * steps * x.double()).cumsum(0).abs() < between.abs()
        weight = torch.empty(n, k, dtype=torch.float16, device=x.device)
        weight[::2], weight[1::2] = pattern, -torch.sign(x) * steps  # the latter are the smallest there are
        apart = max(2, n // (2 * wanted) * 2)
        weight[1::apart][:wanted] = far * signs * steps
        factors = torch.tensor([2.0**-row for row in range(m)], device=x.device)
        return (factors[:, None] * x).half(), weight


def case(
    m: int, n: int, k: int, wanted: int, pad: int = 0, device: str = "cpu",
    made: type[ShortlistTrial] = ShortlistTrial,
) -> Case:  # fmt: skip
    name = f"m{m}-n{n}-k{k}-w{wanted}" + (f"-pad{pad}" if pad else "") + ("-loose" if made is LooseTrial else "")
    return Case(name, partial(made, m, n, k, wanted, pad), device)


CPU = (
    *(case(m, 301, 256, 5, pad=8) for m in (1, 3, 8)),
    case(8, 40, 128, 40),
    case(2, 2000, 512, 21),
    case(2, 301, 256, 5, made=LooseTrial),
)
CUDA = (
    *(case(m, 5000, 512, 21, pad=8, device="cuda") for m in range(1, 9)),
    case(8, 131, 256, 131 - 4, device="cuda"),  # a last row block of three rows, nearly all logits wanted
    case(8, 62080, 5120, 21, device="cuda"),
    case(7, 62080, 5120, 17, device="cuda"),
    case(1, 3000, 5120, 17, device="cuda"),  # seven whole rows of x that are not there
    case(2, 5000, 512, 21, device="cuda", made=LooseTrial),
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[4], CUDA[8])
HAMMERED = (CUDA[7], CUDA[9])

# A head is read once a call; two of them, so that none stays in the second-level cache.
WORKING_SETS = {"cpu": ((CPU[4], 2),), "cuda": ((case(8, 248320, 5120, 21, device="cuda"), 2),)}

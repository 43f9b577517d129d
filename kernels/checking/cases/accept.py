"""Verdicts: drafts that are certain, impossible or somewhere between, every cut, cut ties and broken logits."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.accept import OP, Best, Chain, Rule, problem_of
from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.registry import Schedule

STATES = ("live", "certain", "foreign", "spent", "echo", "ties", "broken", "endless", "changed", "restored")


class AcceptTrial(Trial):
    """Drafts come from laws near the target's: about half of them are accepted in the live states.

    Drawn on the CPU, so that one body is asked the same on every device.
    """

    states = STATES
    places = ("live", "certain", "foreign")

    def __init__(self, rows: int, support: int, width: int, rule: Rule, device: str) -> None:
        draw, self.rule = Draw(rows * 1_000_003 + support * 1_009 + width, "cpu"), rule
        values = draw.normal(rows, support, scale=2.0).sort(-1, descending=True).values
        ids = torch.stack([draw.permutation(1000)[:support] for _ in range(rows)])
        laws = torch.stack([draw.permutation(width) for _ in range(rows)])[: rows - 1]
        # Of the target's own best where it has as many, else tokens that it does not have.
        known = torch.cat((ids, 1000 + torch.arange(rows * width).view(rows, width)), 1)
        self.values, self.known = values, known[:-1].gather(1, laws)
        self.q = torch.softmax(draw.normal(rows - 1, width, scale=1.5).double() - laws * 0.4, -1)
        pick = self.q.cumsum(-1).gt(torch.rand(rows - 1, 1, generator=draw.generator)).long().argmax(-1, keepdim=True)
        tokens = self.known.gather(1, pick)[:, 0].to(device)
        values, ids, self.values = values.to(device), ids.to(device), values.to(device)
        self.known, self.q = self.known.to(device), self.q.to(device)
        self.best = Best(inside_poison(values), inside_poison(ids), inside_poison(values[:, 0] + 1))
        self.chain = Chain(inside_poison(tokens), inside_poison(self.known, pad=rows % 3), inside_poison(self.q))
        self.ids, self.tokens, self.bonus = ids, tokens.clone(), inside_poison(torch.tensor([3, 9, 27], device=device))
        made = {"live": (3, 9, 27), "changed": (3, 40, -(1 << 61))}
        self.known_as = {name: torch.tensor(values, device=device) for name, values in made.items()}
        self.problem = problem_of(self.best, self.chain, rule)

    def set_state(self, state: str) -> None:
        """By fills and copies on the device alone: a graph may hold them."""
        best, chain = self.best, self.chain
        best.values.copy_(self.values)
        best.ids.copy_(self.ids)
        best.largest.copy_(self.values[:, 0] + 1)
        chain.tokens.copy_(self.tokens)
        chain.ids.copy_(self.known)
        chain.q.copy_(self.q)
        self.bonus.copy_(self.known_as["changed" if state == "changed" else "live"])
        if state in ("certain", "spent"):  # and what follows from drafts that were no draws
            chain.ids.fill_(-1)
            chain.q.zero_()
            # Spent: nothing of the target's best tokens remains, and where the law is no wider nothing at all.
            count = min(best.ids.shape[1], chain.ids.shape[1]) if state == "spent" else 1
            chain.ids[:, :count].copy_(best.ids[:-1, :count])
            chain.q[:, :count].fill_(1.0 if state == "spent" else 1e-9)
            chain.tokens.copy_(best.ids[:-1, 0] + 5000 * (state == "spent"))
        if state == "echo":  # the next row's first is this row's draft
            best.ids[1:, 0].copy_(chain.tokens)
        if state == "foreign":
            chain.ids.add_(5000)
            chain.tokens.add_(5000)
        if state == "ties" and self.rule.top_k:
            cut = max(0, self.rule.top_k - 2)
            best.values[-1, cut:].copy_(best.values[-1, cut].clone().expand(best.values.shape[1] - cut))
        if state == "broken":
            best.largest[-1:].fill_(float("nan") if len(best.largest) % 2 else float("-inf"))
        if state == "endless":
            best.values[0, :1].fill_(float("inf"))

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.best, self.chain, self.bonus, self.rule)

    def run(self, schedule: Schedule) -> Outputs:
        return {"packed": self.launch(schedule)}

    def expected(self) -> Outputs:
        return {"packed": OP.reference(self.best, self.chain, self.bonus, self.rule)}


PUBLIC = Rule(1.0, 20, 0.95, 0.0, complete=False)
RULES = {
    "public": PUBLIC, "greedy": Rule(0.0, 1, 1.0, 0.0, False), "minp": Rule(0.7, 20, 1.0, 0.05, False),
    "hot": Rule(3.0, 20, 0.5, 0.0, False), "cold": Rule(1e-300, 20, 0.95, 0.0, False),
    "first": Rule(1.0, 1, 1.0, 0.0, False),
}  # fmt: skip


def case(rows: int, support: int, width: int, rule: str = "public", device: str = "cpu") -> Case:
    made = RULES.get(rule, Rule(1.0, 0, 0.9, 0.01, complete=True))
    name = f"{device}-r{rows}-m{support}-k{width}-{rule}"
    return Case(name, partial(AcceptTrial, rows, support, width, made), device)


def cases(device: str) -> tuple[Case, ...]:
    return (
        *(case(rows, 21, 16, device=device) for rows in range(1, 9)),
        *(case(8, 21, 16, rule, device) for rule in ("minp", "hot", "cold")),
        *(case(rows, 2, 16, rule, device) for rows in (1, 8) for rule in ("greedy", "first")),
        *(case(1, support, 16, "hot", device) for support in range(25, 65, 4)),
        *(case(rows, 12, 16, "whole", device) for rows in (2, 5, 8)),
        *(case(8, 40, 16, "whole", device), case(16, 65, 4, "public", device), case(32, 21, 1, "public", device)),
    )


CPU, CUDA = cases("cpu"), cases("cuda")
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[7], CUDA[12])
HAMMERED = (CUDA[7],)
WORKING_SETS = {"cpu": ((CPU[7], 4),), "cuda": ((CUDA[7], 16),)}

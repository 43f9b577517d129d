"""Commits: every number of accepted rows, rings that wrap, outcomes that do not hold, requests without a window."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison, same_bytes
from kernels.commit import Window, problem_of
from kernels.registry import Schedule

# (broken, tie cut, share of the drafts that is accepted, position)
STATES = {
    "live": (0, 0, 0.5, 5), "none": (0, 0, 0.0, 6), "all": (0, 0, 1.0, 7), "wrapped": (0, 0, 1.0, 261001),
    "broken": (1, 0, 1.0, 9), "tie": (0, 1, 1.0, 9), "restored": (0, 0, 0.5, 5),
}  # fmt: skip


class CommitTrial(Trial):
    states = tuple(STATES)
    places = ("live", "all", "wrapped", "broken")
    keeps_state = True

    def __init__(self, rows: int, rings: tuple[int, ...], shape: tuple[int, int], dtype: str, device: str) -> None:
        draw, kind = Draw(rows * 1_009 + sum(rings), device), getattr(torch, dtype)
        self.drafts = max(rows - 1, 0)
        self.packed = inside_poison(draw.integers(0, 1000, 4 + self.drafts))
        self.bonus, self.selector = (inside_poison(draw.integers(1, 9, n)) for n in (3, 1))
        self.selector = inside_poison(self.selector.int())
        made = [[draw.normal(slots, *shape, dtype=kind) for _ in "kv"] for slots in rings]
        self.first = [part.clone() for pair in made for part in pair]
        held = tuple((inside_poison(k), inside_poison(v)) for k, v in made)
        context = inside_poison(draw.normal(len(rings), 2, rows, *shape, dtype=kind))
        self.window = Window(context, held, inside_poison(draw.integers(0, 9, 1))) if rings else None
        self.outcomes = {
            state: torch.tensor([broken, tie, round(share * self.drafts), 17, position, -5], device=device)
            for state, (broken, tie, share, position) in STATES.items()
        }
        self.problem = problem_of(self.packed, self.window)

    def set_state(self, state: str) -> None:
        self.packed[:3] = self.outcomes[state][:3]
        self.bonus.copy_(self.outcomes[state][3:])
        self.undo()

    def undo(self) -> None:
        self.selector.fill_(3)
        if self.window is not None:
            self.window.length.fill_(40)
            for part, first in zip((part for pair in self.window.rings for part in pair), self.first, strict=True):
                part.copy_(first)

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.packed, self.bonus, self.selector, self.window)

    def run(self, schedule: Schedule) -> Outputs:
        self.undo()
        outputs = {"bonus": self.launch(schedule), "selector": self.selector.clone()}
        if self.window is not None:
            rings = {f"{i}{name}": part.clone() for i, pair in enumerate(self.window.rings)
                     for name, part in zip("kv", pair, strict=True)}  # fmt: skip
            outputs |= {"length": self.window.length.clone(), **rings}
        return outputs

    def expected(self) -> Outputs:
        """By Python, slot by slot."""
        broken, tie, accepted, token, *_ = self.packed.tolist()
        known, position, seed = self.bonus.tolist()
        keep = 0 if broken or tie else accepted + 1
        bonus = [token if keep else known, position + keep, seed]
        wanted = {"bonus": self.bonus.new_tensor(bonus), "selector": self.selector.new_tensor([keep or 3])}
        if self.window is None:
            return wanted
        wanted["length"] = self.window.length.new_tensor([40 + keep])
        for i, pair in enumerate(self.window.rings):
            for half, name in enumerate("kv"):
                ring = self.first[2 * i + half].clone()
                for row in range(keep):
                    ring[(position + row) % len(pair[half])] = self.window.rows[i, half, row]
                wanted[f"{i}{name}"] = ring
        return wanted

    def untouched(self, outputs: Outputs) -> str | None:
        for name, want in self.expected().items():
            if not same_bytes(outputs[name], want):
                return f"{name} is not what slot by slot gives"
        return None


def case(
    rows: int, rings: tuple[int, ...], shape: tuple[int, int] = (2, 16), dtype: str = "float16", device: str = "cpu"
) -> Case:
    name = f"{device}-r{rows}-l{len(rings)}x{rings[0] if rings else 0}-{shape[0]}x{shape[1]}-{dtype}"
    return Case(name, partial(CommitTrial, rows, rings, shape, dtype), device)


def cases(device: str) -> tuple[Case, ...]:
    made = partial(case, device=device)
    return (
        *(made(rows, (2056,) * 5 if device == "cuda" else (41,) * 2, (8, 128) if device == "cuda" else (2, 16))
          for rows in range(1, 9)),
        made(8, ()), made(1, ()), made(8, (8, 100, 9)), made(4, (16,), (1, 8), "bfloat16"), made(8, (24,) * 16),
        made(5, (11,), (1, 4), "float32"),
    )  # fmt: skip


CPU, CUDA = cases("cpu"), cases("cuda")
CASES = CPU + CUDA
SANITIZED = (CUDA[7], CUDA[8], CUDA[10])
HAMMERED = (CUDA[7],)
WORKING_SETS = {"cpu": ((CPU[7], 4),), "cuda": ((CUDA[7], 16),)}

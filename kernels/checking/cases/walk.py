"""Walks: narrow and wide lattices, cold and hot, ties that only noise tells apart, and the public drafter's shape."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.registry import Schedule
from kernels.walk import OP, Draws, problem_of

# (factor of the scores, seed, temperature)
STATES = {
    "live": (1.0, 7, 1.0), "changed": (-2.0, -(1 << 62), 0.6), "zeros": (0.0, 11, 1.0), "cold": (1.0, 3, 1e-300),
    "hot": (1.0, 5, 40.0), "restored": (1.0, 7, 1.0),
}  # fmt: skip


class WalkTrial(Trial):
    states = tuple(STATES)

    def __init__(self, rows: int, width: int, greedy: bool, device: str) -> None:
        draw = Draw(rows * 1_009 + width, device)
        self.values = draw.normal(rows, width, width, scale=2.0)
        self.scores = inside_poison(self.values)
        self.candidates = inside_poison(
            torch.stack([draw.permutation(248320)[:width] for _ in range(rows)]), pad=rows % 3
        )
        self.seed, self.start = (inside_poison(draw.integers(0, 9, 1)) for _ in range(2))
        self.draws = Draws(self.seed, self.start, inside_poison(draw.normal(1).double()), greedy)
        self.problem = problem_of(self.scores, self.candidates, self.draws)

    def set_state(self, state: str) -> None:
        factor, seed, temperature = STATES[state]
        self.scores.copy_(self.values * factor)
        self.seed.fill_(seed)
        self.start.fill_(261000 + (state == "changed"))
        self.draws.temperature.fill_(temperature)

    def launch(self, schedule: Schedule) -> tuple[Tensor, Tensor]:
        return schedule.run(self.scores, self.candidates, self.draws)

    def run(self, schedule: Schedule) -> Outputs:
        tokens, q = self.launch(schedule)
        return {"tokens": tokens, "q": q}

    def expected(self) -> Outputs:
        tokens, q = OP.reference(self.scores, self.candidates, self.draws)
        return {"tokens": tokens, "q": q}


def case(rows: int, width: int, greedy: bool = False, device: str = "cpu") -> Case:
    name = f"{device}-r{rows}-k{width}" + ("-greedy" if greedy else "")
    return Case(name, partial(WalkTrial, rows, width, greedy), device)


def cases(device: str) -> tuple[Case, ...]:
    return (
        *(case(rows, 16, device=device) for rows in range(1, 8)),
        *(
            case(7, 16, True, device),
            case(15, 16, False, device),
            case(1, 64, False, device),
            case(3, 1, False, device),
        ),
        case(5, 5, False, device),
    )


CPU, CUDA = cases("cpu"), cases("cuda")
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[6], CUDA[7])
HAMMERED = (CUDA[6],)
WORKING_SETS = {"cpu": ((CPU[6], 4),), "cuda": ((CUDA[6], 16),)}

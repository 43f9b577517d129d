"""Output gate problems: gates between queries as the projection leaves them, odd heads, the 27B target's heads."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.checking.cases.norm import STATES
from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.output_gate import OP, problem_of
from kernels.registry import Schedule


class OutputGateTrial(Trial):
    states = tuple(STATES)

    def __init__(self, rows: int, heads: int, dim: int, dtype: str, device: str) -> None:
        draw, kind = Draw(rows * 1_000_003 + heads * 1_009 + dim, device), getattr(torch, dtype)
        self.values = (draw.normal(rows, heads, dim, dtype=kind), draw.normal(rows, heads, dim, dtype=kind, scale=3.0))
        # As a projection leaves them: behind each head's query, and in odd numbers of rows with other columns behind.
        rooms = inside_poison(self.values[1].repeat(1, 1, 2).flatten(1), 8 * (rows % 2))
        self.x, self.gate = inside_poison(self.values[0]), rooms.unflatten(1, (heads, 2 * dim))[..., dim:]
        self.problem = problem_of(self.x, self.gate)

    def set_state(self, state: str) -> None:
        self.x.copy_(self.values[0] * STATES[state])
        self.gate.copy_(self.values[1] * min(STATES[state], 30.0))

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.x, self.gate)

    def run(self, schedule: Schedule) -> Outputs:
        return {"y": self.launch(schedule)}

    def expected(self) -> Outputs:
        return {"y": OP.reference(self.x, self.gate)}


def case(rows: int, heads: int, dim: int, dtype: str = "float32", device: str = "cpu") -> Case:
    return Case(f"r{rows}-h{heads}x{dim}-{dtype}", partial(OutputGateTrial, rows, heads, dim, dtype), device)


CPU = (*(case(rows, 3, 16) for rows in range(1, 9)), case(8, 2, 37, "float16"), case(4, 6, 256, "bfloat16"))
CUDA = (
    *(case(rows, 24, 256, "float16", device="cuda") for rows in range(1, 9)),
    case(8, 6, 256, "float16", device="cuda"),
    case(8, 24, 256, "bfloat16", device="cuda"),
    case(7, 3, 20, "float16", device="cuda"),
    case(300, 24, 256, "float16", device="cuda"),
    case(1, 3, 172, "float16", device="cuda"),  # one piece more than a block has
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[8], CUDA[10])
HAMMERED = (CUDA[7], CUDA[10])
WORKING_SETS = {"cpu": ((case(8, 8, 64), 16),), "cuda": ((CUDA[7], 16),)}

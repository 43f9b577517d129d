"""Block convolution problems: one to four taps, corrections inside a wider projection, the public drafter's width."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.block_conv import OP, problem_of
from kernels.checking.cases.norm import STATES
from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.registry import Schedule


class BlockConvTrial(Trial):
    states = tuple(STATES)

    def __init__(self, rows: int, width: int, taps: int, groups: int, dtype: str, device: str) -> None:
        draw, kind = Draw(rows * 1_000_003 + width * 1_009 + taps, device), getattr(torch, dtype)
        self.values = (
            draw.normal(1, rows, width, dtype=kind), draw.normal(1, rows, 2 * taps, groups, dtype=kind, scale=0.1),
        )  # fmt: skip
        self.base = draw.normal(taps, width, dtype=kind, scale=0.5)
        self.x, self.both = inside_poison(self.values[0]), inside_poison(self.values[1])
        self.dynamic = self.both[..., taps:, :]
        self.problem = problem_of(self.x, self.dynamic, self.base)

    def set_state(self, state: str) -> None:
        self.x.copy_(self.values[0] * STATES[state])
        self.both.copy_(self.values[1] * min(STATES[state], 10.0))

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.x, self.dynamic, self.base)

    def run(self, schedule: Schedule) -> Outputs:
        return {"y": self.launch(schedule)}

    def expected(self) -> Outputs:
        return {"y": OP.reference(self.x, self.dynamic, self.base)}


def case(rows: int, width: int, taps: int, groups: int, dtype: str = "float32", device: str = "cpu") -> Case:
    name = f"r{rows}-w{width}-t{taps}-g{groups}-{dtype}"
    return Case(name, partial(BlockConvTrial, rows, width, taps, groups, dtype), device)


CPU = (
    *(case(rows, 48, 2, 3) for rows in range(1, 9)),
    *(case(8, 40, taps, 5) for taps in (1, 3, 4)),
    case(8, 64, 2, 4, "float16"),
    case(2, 64, 3, 4, "bfloat16"),
    case(2, 64, 4, 4),
)
CUDA = (
    *(case(rows, 5120, 2, 320, "float16", device="cuda") for rows in range(1, 9)),
    case(8, 5120, 2, 320, "bfloat16", device="cuda"),
    *(case(3, 1096, taps, 137, "float16", device="cuda") for taps in (1, 3, 4)),
    case(2, 5120, 4, 320, "float16", device="cuda"),
    case(2, 516, 2, 129, "float16", device="cuda"),  # a channel quad more than a block has
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[7], CUDA[10])
HAMMERED = (CUDA[7], CUDA[10])
WORKING_SETS = {"cpu": ((case(8, 256, 2, 16), 16),), "cuda": ((CUDA[7], 16),)}

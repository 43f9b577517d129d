"""Gated norm problems: odd heads, a gate inside a wider projection, the 27B target's heads on one rank and on four."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.checking.cases.norm import EPS, STATES
from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.gated_norm import OP, problem_of
from kernels.registry import Schedule


class GatedNormTrial(Trial):
    states = tuple(STATES)

    def __init__(self, rows: int, heads: int, dim: int, dtype: str, pad: int, device: str) -> None:
        draw, kind = Draw(rows * 1_000_003 + heads * 1_009 + dim, device), getattr(torch, dtype)
        self.values = (draw.normal(rows, heads, dim, dtype=kind), draw.normal(rows, heads * dim, dtype=kind, scale=3.0))
        self.x, self.gate = inside_poison(self.values[0]), inside_poison(self.values[1], pad)
        self.scale = inside_poison(1 + draw.normal(dim, scale=0.1))
        self.problem = problem_of(self.x, self.gate)

    def set_state(self, state: str) -> None:
        self.x.copy_(self.values[0] * STATES[state])
        self.gate.copy_(self.values[1] * min(STATES[state], 30.0))

    def least_equal(self, state: str) -> float | None:
        # A rounding too few, or too many, changes a tenth of them and more. The SiLU of a loud gate is the gate but for
        # what FP32 cannot hold, and the product of two 16-bit values then often lies halfway.
        return 0.98 if state != "loud" else None

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.x, self.gate, self.scale, EPS)

    def run(self, schedule: Schedule) -> Outputs:
        return {"y": self.launch(schedule)}

    def expected(self) -> Outputs:
        return {"y": OP.reference(self.x, self.gate, self.scale, EPS)}


def case(rows: int, heads: int, dim: int, dtype: str = "float32", pad: int = 0, device: str = "cpu") -> Case:
    name = f"r{rows}-h{heads}x{dim}-{dtype}" + (f"-pad{pad}" if pad else "")
    return Case(name, partial(GatedNormTrial, rows, heads, dim, dtype, pad), device)


CPU = (
    *(case(rows, 3, 16, pad=rows) for rows in range(1, 9)),
    case(8, 2, 37, "float16", pad=5),
    case(4, 6, 128, "bfloat16"),
    case(2, 3, 37),
)
CUDA = (
    *(case(rows, 48, 128, "float16", pad=10336, device="cuda") for rows in range(1, 9)),
    case(8, 12, 128, "float16", pad=2592, device="cuda"),
    case(8, 48, 128, "bfloat16", device="cuda"),
    case(7, 3, 128, "float16", pad=4, device="cuda"),
    case(300, 48, 128, "float16", device="cuda"),
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[8], CUDA[10])
HAMMERED = (CUDA[7], CUDA[10])
WORKING_SETS = {"cpu": ((case(8, 8, 64), 16),), "cuda": ((CUDA[7], 16),)}

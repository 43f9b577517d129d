"""Residual norm problems: with and without a delta, odd widths, rows inside wider ones, the 27B target's width."""

from __future__ import annotations

from functools import partial

import torch

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.norm import OP, problem_of
from kernels.registry import Schedule

EPS = 1e-6
# Faint rows are no longer than the epsilon; loud ones leave little of FP16's range.
STATES = {"live": 1.0, "changed": -3.0, "zeros": 0.0, "faint": 1e-3, "loud": 1e3, "restored": 1.0}


class NormTrial(Trial):
    states = tuple(STATES)

    def __init__(self, rows: int, width: int, dtype: str, delta: bool, pad: int, device: str) -> None:
        draw, kind = Draw(rows * 1_000_003 + width, device), getattr(torch, dtype)
        self.values = [draw.normal(rows, width, dtype=kind) for _ in range(2)]
        self.x = inside_poison(self.values[0], pad)
        self.delta = inside_poison(self.values[1], pad) if delta else None
        self.scale = inside_poison(1 + draw.normal(width, scale=0.1))
        self.problem = problem_of(self.x, self.delta)

    def set_state(self, state: str) -> None:
        self.x.copy_(self.values[0] * STATES[state])
        if self.delta is not None:
            self.delta.copy_(self.values[1] * STATES[state])

    def least_equal(self, state: str) -> float | None:
        # The sum of two 16-bit values ends halfway between two others every few elements.
        return 0.98

    def launch(self, schedule: Schedule) -> tuple[torch.Tensor, torch.Tensor]:
        return schedule.run(self.x, self.delta, self.scale, EPS)

    def run(self, schedule: Schedule) -> Outputs:
        return dict(zip(("s", "y"), self.launch(schedule), strict=True))

    def expected(self) -> Outputs:
        return dict(zip(("s", "y"), OP.reference(self.x, self.delta, self.scale, EPS), strict=True))


def case(rows: int, width: int, dtype: str = "float32", delta: bool = True, pad: int = 0, device: str = "cpu") -> Case:
    name = f"r{rows}-w{width}-{dtype}" + ("" if delta else "-alone") + (f"-pad{pad}" if pad else "")
    return Case(name, partial(NormTrial, rows, width, dtype, delta, pad), device)


CPU = (
    *(case(rows, 48, delta=rows % 2 == 0) for rows in range(1, 9)),
    case(8, 101, "float16", pad=3),
    case(5, 1024, "bfloat16"),
    case(3, 250, "float16", delta=False, pad=2),
    case(2, 37),
)
CUDA = (
    *(case(rows, 5120, "float16", delta=rows > 1, device="cuda") for rows in range(1, 9)),
    case(8, 5120, "bfloat16", device="cuda"),
    case(8, 5120, "float16", delta=False, pad=8, device="cuda"),
    case(7, 1096, "float16", pad=4, device="cuda"),
    case(8, 128, "float16", device="cuda"),
    case(3, 8192, "float16", device="cuda"),
    case(300, 5120, "float16", device="cuda"),
    *(case(2, width, "float16", device="cuda") for width in (1024, 2052, 5124)),  # where more pieces of a row begin
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[7], CUDA[10], CUDA[12])
HAMMERED = (CUDA[7], CUDA[10])
WORKING_SETS = {"cpu": ((case(8, 1024), 16),), "cuda": ((CUDA[7], 16),)}

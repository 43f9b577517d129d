"""Prompt attention problems: whole prompts, chunks behind others, grouped heads, the public target's heads."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.prefill_attention import OP, problem_of
from kernels.registry import Schedule

# Scores of loud queries reach hundreds: one key takes all, in the past or among the own ones.
STATES = {"live": 1.0, "changed": -2.0, "zeros": 0.0, "loud": 20.0, "restored": 1.0}


class PrefillAttentionTrial(Trial):
    states = tuple(STATES)

    def __init__(self, rows: int, past: int, heads: tuple[int, int], dim: int, dtype: str, device: str) -> None:
        draw, kind = Draw(rows * 1_000_003 + past * 1_009 + dim, device), getattr(torch, dtype)
        q_heads, kv_heads = heads
        self.value = draw.normal(rows, q_heads, dim, dtype=kind)
        self.q = inside_poison(self.value)
        self.k, self.v = (draw.normal(past + rows, kv_heads, dim, dtype=kind) for _ in range(2))
        self.scale = dim**-0.5
        self.problem = problem_of(self.q, self.k)

    def set_state(self, state: str) -> None:
        self.q.copy_(self.value * STATES[state])

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.q, self.k, self.v, self.scale)

    def run(self, schedule: Schedule) -> Outputs:
        return {"out": self.launch(schedule)}

    def expected(self) -> Outputs:
        return {"out": OP.reference(self.q, self.k, self.v, self.scale)}


def case(rows: int, past: int, heads: tuple[int, int], dim: int, dtype: str = "float32", device: str = "cpu") -> Case:
    name = f"t{rows}-p{past}-h{heads[0]}/{heads[1]}x{dim}-{dtype}"
    return Case(name, partial(PrefillAttentionTrial, rows, past, heads, dim, dtype), device)


TARGET = ((24, 4), 256)
CPU = (
    *(case(rows, past, (4, 2), 16) for rows in (1, 7, 64) for past in (0, 1, 33)),
    case(1030, 5, (2, 1), 8),  # more rows than one mask has
    case(40, 24, (6, 1), 32, "bfloat16"),
    case(9, 130, (3, 3), 24, "float16"),
)
CUDA = (
    *(case(rows, past, *TARGET, "float16", "cuda") for rows in (64, 333) for past in (0, 96, 1000)),
    case(17, 48, *TARGET, "bfloat16", "cuda"),
    case(64, 64, (6, 1), 256, "float16", "cuda"),
)
CASES = CPU + CUDA
SANITIZED = CUDA[:1]
HAMMERED = CUDA[1:2]
WORKING_SETS = {
    "cpu": ((case(256, 256, (8, 2), 64), 4),),
    "cuda": ((case(3296, 29664, *TARGET, "float16", "cuda"), 4),),
}

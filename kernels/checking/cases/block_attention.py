"""Block attention problems: narrow and whole blocks, empty and partly seen rings, causal masks, the public drafter."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.block_attention import OP, Seen, problem_of
from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.registry import Schedule

# Scores of loud queries reach hundreds: one key takes all; `alone` sees nothing but itself, `sunk` that far below zero.
STATES = {"live": 1.0, "changed": -2.0, "zeros": 0.0, "loud": 20.0, "alone": 1.0, "sunk": -20.0, "restored": 1.0}


class BlockAttentionTrial(Trial):
    states = tuple(STATES)
    places = ("live", "alone")

    def __init__(self, rows: int, heads: tuple[int, int], dim: int, context: int, dtype: str, device: str) -> None:
        draw, kind = Draw(rows * 1_000_003 + context * 1_009 + dim, device), getattr(torch, dtype)
        q_heads, kv_heads = heads
        self.values = [draw.normal(rows, count, dim, dtype=kind) for count in (q_heads, kv_heads)]
        wide = draw.normal(rows, 2 * kv_heads, dim, dtype=kind)
        self.q, self.k, self.v = inside_poison(self.values[0]), inside_poison(self.values[1]), wide[:, kv_heads:]
        ring = [inside_poison(draw.normal(context, kv_heads, dim, dtype=kind)) for _ in range(2)]
        own = torch.ones(rows, rows, dtype=torch.bool, device=device)
        seen = draw.integers(0, 4, rows, context) > 0 if context else own[:, :0]
        self.masks = {
            "live": torch.cat((seen, own), 1), "changed": torch.cat((~seen, own.tril()), 1),
            "alone": torch.cat((seen & False, own.tril() & own.triu()), 1),
        }  # fmt: skip
        self.seen = Seen(ring[0], ring[1], self.masks["live"].clone())
        self.masks["sunk"] = self.masks["alone"]
        self.own_keys = self.values[1].repeat_interleave(q_heads // kv_heads, 1)
        self.scale = dim**-0.5
        self.problem = problem_of(self.q, self.seen, self.k, self.v)

    def set_state(self, state: str) -> None:
        self.q.copy_((self.own_keys if state == "sunk" else self.values[0]) * STATES[state])
        self.k.copy_(self.values[1] * (1 + (state == "changed")))
        self.seen.mask.copy_(self.masks.get(state, self.masks["live"]))

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.q, self.seen, self.k, self.v, self.scale)

    def run(self, schedule: Schedule) -> Outputs:
        return {"out": self.launch(schedule)}

    def expected(self) -> Outputs:
        return {"out": OP.reference(self.q, self.seen, self.k, self.v, self.scale)}


def case(
    rows: int, heads: tuple[int, int], dim: int, context: int, dtype: str = "float32", device: str = "cpu"
) -> Case:
    name = f"r{rows}-h{heads[0]}/{heads[1]}x{dim}-c{context}-{dtype}"
    return Case(name, partial(BlockAttentionTrial, rows, heads, dim, context, dtype), device)


DRAFTER = ((32, 8), 128)
CPU = (
    *(case(rows, (4, 2), 16, 37) for rows in range(1, 9)),
    case(8, (4, 4), 32, 0),
    case(8, (6, 2), 16, 130, "float16"),
    case(3, (4, 1), 16, 9, "bfloat16"),
)
CUDA = (
    *(case(rows, *DRAFTER, 2056, "float16", "cuda") for rows in range(1, 9)),
    *(case(8, *DRAFTER, context, "float16", "cuda") for context in (0, 1, 7, 120, 1033, 2168)),
    case(8, (8, 4), 128, 300, "float16", "cuda"),
    case(7, (3, 3), 128, 500, "float16", "cuda"),
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[7], CUDA[8], CUDA[9], CUDA[12])
HAMMERED = (CUDA[7], CUDA[11])
WORKING_SETS = {"cpu": ((case(8, (8, 4), 32, 200), 16),), "cuda": ((CUDA[7], 5),)}

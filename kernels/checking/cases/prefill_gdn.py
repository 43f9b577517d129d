"""Prompt GDN problems: first chunks and later ones, lengths that no chunk of 64 divides, the public target's heads."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.gdn import Layer
from kernels.prefill_gdn import OP, problem_of
from kernels.registry import Schedule

# Faint keys are no longer than the epsilon of their norm; loud gates leave the bend of softplus.
STATES = {"live": 1.0, "first": 1.0, "zeros": 0.0, "faint": 1e-3, "loud": 8.0, "restored": 1.0}


class Shape(NamedTuple):
    rows: int
    key_heads: int = 2
    value_heads: int = 6
    key_dim: int = 16
    value_dim: int = 16
    dtype: str = "float32"
    width: int = 4


class PrefillGdnTrial(Trial):
    states = tuple(STATES)

    def __init__(self, shape: Shape, device: str) -> None:
        draw, kind = Draw(shape.rows * 104729 + shape.value_dim, device), getattr(torch, shape.dtype)
        channels = 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim
        self.value = draw.normal(shape.rows, channels + 2 * shape.value_heads, dtype=kind)
        self.packed = self.value.clone()
        self.qkv, self.a, self.b = self.packed.split((channels, shape.value_heads, shape.value_heads), 1)
        self.layer = Layer(
            draw.normal(channels, shape.width, scale=0.5),
            draw.normal(shape.value_heads) - 4,  # slow decays: what came before still counts at the end
            draw.normal(shape.value_heads),
        )
        self.starts = (
            draw.normal(shape.width - 1, channels, dtype=kind),
            draw.normal(shape.value_heads, shape.key_dim, shape.value_dim),
        )
        self.history, self.before = (start.clone() for start in self.starts)
        self.problem = problem_of(self.qkv, self.layer, self.before)

    def set_state(self, state: str) -> None:
        self.packed.copy_(self.value * STATES[state])
        for operand, start in zip((self.history, self.before), self.starts, strict=True):
            operand.copy_(start * (state != "first"))

    def launch(self, schedule: Schedule) -> tuple[torch.Tensor, torch.Tensor]:
        return schedule.run(self.qkv, self.a, self.b, self.layer, self.history, self.before)

    def run(self, schedule: Schedule) -> Outputs:
        out, after = self.launch(schedule)
        return {"out": out, "after": after}

    def expected(self) -> Outputs:
        want = OP.reference(self.qkv, self.a, self.b, self.layer, self.history, self.before)
        return {"out": want.out, "after": want.after}

    def untouched(self, outputs: Outputs) -> str | None:
        held = zip((self.history, self.before), self.starts, strict=True)
        moved = not all(torch.equal(operand, start) or not operand.any() for operand, start in held)
        return "what came before the chunk changed" if moved else None


def case(shape: Shape, device: str = "cpu") -> Case:
    heads = f"h{shape.key_heads}/{shape.value_heads}x{shape.key_dim}x{shape.value_dim}"
    return Case(f"t{shape.rows}-{heads}-{shape.dtype}", partial(PrefillGdnTrial, shape), device)


CPU = (
    *(case(Shape(rows)) for rows in (1, 2, 63, 64, 65, 130)),
    case(Shape(70, 1, 1, 8, 24)),
    case(Shape(66, 1, 3, 32, 40, "float16")),
    case(Shape(20, 2, 4, 16, 16, "bfloat16")),
)
TARGET = Shape(64, 16, 48, 128, 128, "float16")
CUDA = (
    *(case(TARGET._replace(rows=rows), "cuda") for rows in (64, 65, 200, 1000)),
    case(Shape(150, 4, 12, 128, 128, "bfloat16"), "cuda"),
)
CASES = CPU + CUDA
SANITIZED = CUDA[:1]
HAMMERED = CUDA[1:2]
WORKING_SETS = {"cpu": ((case(Shape(128, 2, 6, 64, 64)), 4),), "cuda": ((case(TARGET._replace(rows=3296), "cuda"), 4),)}

"""Rotary problems: the target's gated heads into an E4M3 or 16-bit cache, the drafter's heads and context without."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.checking.cases.norm import EPS, STATES
from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import first_difference, inside_poison
from kernels.registry import Schedule
from kernels.rotary import OP, Heads, Store, problem_of

THETA = 1e7
PAGES, PAGE_SIZE = 4, 96


class Shape(NamedTuple):
    """`cache` is the dtype K and V are stored in, "" without a store."""

    rows: int
    q_heads: int = 4
    kv_heads: int = 2
    dim: int = 16
    rotated: int = 8
    gated: bool = True
    dtype: str = "float32"
    cache: str = ""
    pad: int = 0


class RotaryTrial(Trial):
    states = tuple(STATES)

    def __init__(self, shape: Shape, device: str) -> None:
        draw, dtype = Draw(shape.rows * 104729 + shape.dim, device), getattr(torch, shape.dtype)
        q_scale, k_scale = (inside_poison(1 + draw.normal(shape.dim, scale=0.1)) for _ in range(2))
        counts = (shape.q_heads, shape.kv_heads, shape.gated)
        self.heads = Heads(q_scale if shape.q_heads else None, k_scale, EPS, *counts)
        self.values = draw.normal(shape.rows, sum(self.heads.widths), dtype=dtype)
        self.qkv = inside_poison(self.values, shape.pad)
        positions = torch.arange(shape.rows, device=device) + 261_000
        inverse = THETA ** -(torch.arange(0, shape.rotated, 2, device=device).float() / shape.rotated)
        angles = (positions[:, None, None].float() * inverse).repeat(1, 1, 2)
        self.table, self.store = (angles.cos(), angles.sin()), None
        if shape.cache:
            flat = (PAGES, PAGE_SIZE, shape.kv_heads, shape.dim)
            pages = [draw.normal(*flat).to(getattr(torch, shape.cache)) for _ in range(2)]
            self.before = [page.clone() for page in pages]
            self.store = Store(pages[0], pages[1], draw.permutation(PAGES * PAGE_SIZE)[: shape.rows])
            self.others = torch.ones(PAGES * PAGE_SIZE, dtype=torch.bool, device=device)
            self.others[self.store.slots] = False
        self.problem = problem_of(self.qkv, self.heads, self.table, self.store)

    def set_state(self, state: str) -> None:
        self.qkv.copy_(self.values * STATES[state])

    def launch(self, schedule: Schedule) -> tuple[Tensor | None, ...]:
        return schedule.run(self.qkv, self.heads, self.table, self.store)

    def run(self, schedule: Schedule) -> Outputs:
        if self.store:
            for page, before in zip(self.pages(), self.before, strict=True):
                page.view(torch.uint8).copy_(before.view(torch.uint8))
        q, k, v = self.launch(schedule)
        found = {"q": q, "k": k, "v": v}
        if self.store:
            k_rows, v_rows = (self.rows_of(page) for page in self.pages())
            copies = {
                f"{name}_pages": page.view(torch.uint8).clone() for name, page in zip("kv", self.pages(), strict=True)
            }
            found |= {"k": k_rows, "v": v_rows, **copies}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def pages(self) -> tuple[Tensor, Tensor]:
        return self.store.k_pages, self.store.v_pages

    def rows_of(self, pages: Tensor) -> Tensor:
        """What the slots hold, as 16 or 32 bits."""
        rows = pages.flatten(0, 1).view(torch.uint8).index_select(0, self.store.slots).view(pages.dtype)
        return rows.float() if pages.element_size() == 1 else rows

    def expected(self) -> Outputs:
        q, k, v = OP.reference(self.qkv, self.heads, self.table, self.store)
        return {name: tensor for name, tensor in (("q", q), ("k", k), ("v", v)) if tensor is not None}

    def untouched(self, outputs: Outputs) -> str | None:
        for name, before in zip("kv", self.before if self.store else (), strict=False):
            pages = (outputs[f"{name}_pages"], before.view(torch.uint8))
            after, then = (page.flatten(0, 1)[self.others] for page in pages)
            if change := first_difference(after, then):
                return f"a slot of {name} that this run does not own changed: {change}"
        return None


def case(shape: Shape, device: str = "cpu") -> Case:
    heads = f"h{shape.q_heads}/{shape.kv_heads}x{shape.dim}r{shape.rotated}" + ("-gated" if shape.gated else "")
    tail = (f"-{shape.cache}" if shape.cache else "") + (f"-pad{shape.pad}" if shape.pad else "")
    return Case(f"r{shape.rows}-{heads}-{shape.dtype}{tail}", partial(RotaryTrial, shape), device)


E4M3 = "float8_e4m3fn"
TARGET = Shape(8, 24, 4, 256, 64, True, "float16", E4M3)
DRAFTER = Shape(8, 32, 8, 128, 128, False, "float16")
CPU = (
    *(case(Shape(rows, cache="float32")) for rows in range(1, 9)),
    case(Shape(8, dtype="float16", cache=E4M3, pad=3)),
    case(Shape(8, dtype="bfloat16", cache="float16", gated=False)),
    case(Shape(8, rotated=16, gated=False)),
    case(Shape(5, q_heads=0, rotated=16, gated=False, dtype="float16", pad=5)),
)
CUDA = (
    *(case(TARGET._replace(rows=rows), "cuda") for rows in range(1, 9)),
    case(TARGET._replace(cache="float16", pad=8), "cuda"),
    case(TARGET._replace(dtype="bfloat16", pad=8), "cuda"),
    case(TARGET._replace(rows=5, q_heads=6, kv_heads=1), "cuda"),
    *(case(DRAFTER._replace(rows=rows), "cuda") for rows in (2, 8)),
    *(case(DRAFTER._replace(rows=rows, q_heads=0, pad=4), "cuda") for rows in (1, 8)),
    case(DRAFTER._replace(rotated=8, kv_heads=3), "cuda"),
    case(TARGET._replace(rows=300), "cuda"),
    case(DRAFTER._replace(rows=1, q_heads=0, kv_heads=1), "cuda"),  # one warp's work
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[8], CUDA[10], CUDA[11], CUDA[13])
HAMMERED = (CUDA[7], CUDA[12])
WORKING_SETS = {"cpu": ((case(Shape(8, 8, 4, 64, 64, cache="float16")), 16),), "cuda": ((CUDA[7], 16), (CUDA[12], 16))}

"""Verify-attention problems: q1 to q8, shuffled and padded page tables, strided pages, row states, long contexts."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.attention import OP, problem_of
from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison
from kernels.registry import Schedule


class Shape(NamedTuple):
    """`length` is the longest row's; the rows before it are one token shorter each, as in verification."""

    rows: int
    length: int
    q_heads: int = 6
    kv_heads: int = 1
    head_dim: int = 256
    page_size: int = 16
    dtype: str = "float32"
    kv_dtype: str = "float32"
    strided: bool = False


def paged(draw: Draw, shape: Shape, pages: int) -> Tensor:
    """Random K or V pages; strided ones have poison between their pages and their tokens."""
    size = (pages, shape.page_size, shape.kv_heads, shape.head_dim)
    dtype = getattr(torch, shape.kv_dtype)
    if not shape.strided:
        return draw.normal(*size).to(dtype)
    wide = draw.normal(pages, shape.page_size + 3, shape.kv_heads, shape.head_dim + 16).to(dtype)
    wide.view(torch.uint8)[:, shape.page_size :] = 0xFF
    return wide[:, : shape.page_size, :, : shape.head_dim]


_AHEAD, _COMPARED = 120.0, 2048  # exp(120) is beyond FP32; so many keys are looked through for the runner-up


class AttentionTrial(Trial):
    states = ("live", "all_zero", "tail_zero", "first_zero", "peaks-0", "peaks-1", "changed", "restored")
    places = ("live", "all_zero", "first_zero", "changed")

    def __init__(self, shape: Shape, device: str) -> None:
        draw = Draw(shape.rows * 7919 + shape.length, device)
        used = -(-max(shape.length, 1) // shape.page_size)
        pool = used + 2
        self.scale = shape.head_dim**-0.5
        self.k, self.v = paged(draw, shape, pool), paged(draw, shape, pool)
        pad = torch.full((1,), -1, dtype=torch.int32, device=device)
        tables = [torch.cat((draw.permutation(pool)[:used].int(), pad)) for _ in range(2)]
        size, dtype = (shape.rows, shape.q_heads, shape.head_dim), getattr(torch, shape.dtype)
        queries = [draw.normal(*size, dtype=dtype) for _ in range(2)]
        self.q, self.table = inside_poison(queries[0]), tables[0].clone()
        self.lengths = torch.zeros(shape.rows, dtype=torch.int32, device=device)
        back = torch.arange(shape.rows - 1, -1, -1, dtype=torch.int32, device=device)
        live = (shape.length - back).clamp(min=0)
        first, tail = live.clone(), live.clone()
        first[0], tail[shape.rows // 2 :] = 0, 0
        changed = (live - live // 3).flip(0)
        self.values = {
            "live": (queries[0], tables[0], live),
            "restored": (queries[0], tables[0], live),
            "all_zero": (queries[0], tables[0], live * 0),
            "first_zero": (queries[0], tables[0], first),
            "tail_zero": (queries[0], tables[0], tail),
            "peaks-0": (self.peaks(tables[0], live, 0), tables[0], live),
            "peaks-1": (self.peaks(tables[0], live, 1), tables[0], live),
            "changed": (queries[1], tables[1], changed),
        }
        self.problem = problem_of(self.q, self.k, self.v, self.table)
        # One page that the changed table begins with holds other tokens then: nothing of K and V may be remembered.
        self.page = int(tables[1][0])
        self.whole = [pages.clone() for pages in (self.k, self.v)] if device == "cpu" else []
        stored = [pages[self.page].clone() for pages in (self.k, self.v)]
        self.pages = {True: [page.float().flip(0, 2).to(page.dtype) for page in stored], False: stored}

    def peaks(self, table: Tensor, lengths: Tensor, turn: int) -> Tensor:
        """Queries along one key each, of a score so high that the sums overflow if a running maximum leaves it out.

        Rows and heads take the places of the keys in turn, so that together they stand at every place of a block.
        """
        rows, heads, _ = self.q.shape
        count, per_head = rows * heads, heads // self.k.shape[2]
        row, head = torch.meshgrid(torch.arange(rows), torch.arange(heads), indexing="ij")
        place = (turn * count + row * heads + head).to(table.device) % lengths[:, None].clamp(min=1)
        key = self.k[
            table[place // self.k.shape[1]].long(), place % self.k.shape[1], (head // per_head).to(table.device)
        ]
        unit = key.double() / key.double().square().sum(-1, keepdim=True).clamp(min=1e-3)
        # Distance to the runner-up of the same head, as a part of the peak's own score.
        tokens = torch.arange(min(int(lengths.max()), _COMPARED), device=table.device)
        known = self.k[table[tokens // self.k.shape[1]].long(), tokens % self.k.shape[1]].double()
        scores = torch.einsum("rhd,thd->rht", unit, known.repeat_interleave(per_head, 1))
        ahead = 1 - scores.masked_fill(tokens == place.to(table.device)[..., None], -1.0).amax(-1, keepdim=True)
        return (unit * (_AHEAD / ahead.clamp(min=0.05)) / self.scale).to(self.q.dtype)

    def set_state(self, state: str) -> None:
        for operand, value in zip((self.q, self.table, self.lengths), self.values[state], strict=True):
            operand.copy_(value)
        for pages, page in zip((self.k, self.v), self.pages[state == "changed"], strict=True):
            pages[self.page].copy_(page)
        if self.device == "cpu":
            self.hide()

    def hide(self) -> None:
        """NaN in every token that no row sees. On the CPU alone: Hopper's schedules have not been run so."""
        tokens = torch.arange(int(self.lengths.max()))
        hidden = torch.ones(self.k.shape[:2], dtype=torch.bool)
        hidden[self.table[tokens // self.k.shape[1]].long(), tokens % self.k.shape[1]] = False
        for pages, whole in zip((self.k, self.v), self.whole, strict=True):
            stored = pages[self.page].clone()
            pages.copy_(whole)
            pages[self.page].copy_(stored)
            pages.view(torch.uint8)[hidden] = 0xFF

    def operands(self) -> tuple[Tensor | float, ...]:
        return self.q, self.k, self.v, self.table, self.lengths, self.scale

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(*self.operands())

    def run(self, schedule: Schedule) -> Outputs:
        return {"out": self.launch(schedule)}

    def expected(self) -> Outputs:
        return {"out": OP.reference(*self.operands())}


def case(shape: Shape, device: str = "cpu") -> Case:
    kind = f"{shape.dtype}-{shape.kv_dtype}" + ("-strided" if shape.strided else "")
    heads = f"h{shape.q_heads}/{shape.kv_heads}x{shape.head_dim}"
    name = f"q{shape.rows}-t{shape.length}-{heads}-p{shape.page_size}-{kind}"
    return Case(name, partial(AttentionTrial, shape), device, shape.length)


CPU = (
    *(case(Shape(rows, 37, 4, 2, 32)) for rows in range(1, 9)),
    *(case(Shape(8, length, 4, 2, 32)) for length in (1, 8, 15, 16, 17, 129, 1025)),
    case(Shape(8, 100, 6, 1, 256, kv_dtype="float8_e4m3fn")),
    case(Shape(5, 77, 6, 2, 24, page_size=7, dtype="float16", kv_dtype="float16", strided=True)),
    case(Shape(3, 61, 3, 3, 40, page_size=5, dtype="bfloat16", kv_dtype="bfloat16", strided=True)),
    case(Shape(8, 133, 12, 2, 256, page_size=48, dtype="float16", kv_dtype="float8_e4m3fn", strided=True)),
)

LONG = (1025, 3297, 8192, 32768, 131072, 262144)
SHORT = (1, 64, 1024, 1025, 2049, 3840)  # with their tables' pages at most 4096 tokens
TP4 = Shape(8, 1025, page_size=3296, dtype="float16", kv_dtype="float8_e4m3fn")
TP1 = TP4._replace(q_heads=24, kv_heads=4)
CUDA = tuple(
    case(shape, "cuda")
    for shape in (
        *(TP4._replace(rows=rows) for rows in range(1, 9)),
        *(TP4._replace(length=length) for length in LONG[1:]),
        *(TP1._replace(length=length) for length in LONG),
        *(TP4._replace(length=length, page_size=1648, kv_dtype="float16") for length in LONG[:3]),
        *(TP4._replace(length=length, page_size=16) for length in (1, 15, 17, 129)),
        TP1._replace(length=3297, strided=True),
        *(TP1._replace(length=length, page_size=256) for length in SHORT),
        TP4._replace(length=2000, page_size=256),
        TP1._replace(length=700, page_size=256, rows=3, strided=True),
    )
)
CASES = CPU + CUDA
# Every length once, with one KV head; the wide one and the strided one where they are short.
SANITIZED = tuple(
    case(shape, "cuda")
    for shape in (
        *(TP4._replace(length=length) for length in LONG),
        *(TP4._replace(length=length, page_size=16) for length in (1, 15, 17, 129)),
        TP4._replace(rows=1),
        TP4._replace(length=3297, page_size=1648, kv_dtype="float16"),
        TP1._replace(length=3297, strided=True),
        *(TP1._replace(length=length, page_size=256) for length in SHORT),
        TP4._replace(length=2000, page_size=256),
        TP1._replace(length=700, page_size=256, rows=3, strided=True),
    )
)
HAMMERED = tuple(
    case(shape, "cuda")
    for shape in (
        TP4,
        TP1._replace(length=3297),
        TP4._replace(length=32768),
        *(TP1._replace(length=length, page_size=256) for length in (1024, 3840)),
    )
)

# What one pass over a model's layers costs: (problem, distinct layers) by device.
WORKING_SETS = {
    "cpu": ((case(Shape(8, 512, 8, 2, 64)), 8), (case(Shape(8, 512, 6, 1, 256, kv_dtype="float8_e4m3fn")), 4)),
    "cuda": ((case(TP4._replace(length=32768), "cuda"), 16), (case(TP1._replace(length=32768), "cuda"), 16)),
}

"""GDN verification problems: one to eight rows inside a wider projection, every selector, retired slots."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import first_difference
from kernels.gdn import OP, Layer, State, problem_of
from kernels.registry import Schedule


class Shape(NamedTuple):
    """`row_pad` elements lie between the packed rows, as the tail of a wider projection does."""

    rows: int
    key_heads: int = 2
    value_heads: int = 6
    key_dim: int = 16
    value_dim: int = 16
    dtype: str = "float32"
    row_pad: int = 0
    padded_slots: int = 0
    slots: int = 8
    width: int = 4


class GdnTrial(Trial):
    places = ("selector-1", "selector-8")
    keeps_state = True

    def __init__(self, shape: Shape, device: str) -> None:
        self.shape, draw = shape, Draw(shape.rows * 104729 + shape.value_dim, device)
        dtype = getattr(torch, shape.dtype)
        selectors = (f"selector-{s}" for s in range(1, shape.slots + 1))
        halfway = ("halfway",) if shape.key_dim in (4, 16, 64, 256) else ()
        self.states = ("live", *selectors, "zeros", "faint", "loud", *halfway, "changed", "restored")
        channels = 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim
        wide = channels + 2 * shape.value_heads + shape.row_pad
        rows = [draw.normal(shape.rows, wide, dtype=dtype) for _ in range(2)]
        # Faint keys are no longer than the epsilon of their norm; loud gates leave the bend of softplus.
        self.rows = {"changed": rows[1], "zeros": rows[0] * 0, "faint": rows[0] * 1e-3, "loud": rows[0] * 8}
        self.live, self.packed = rows[0], rows[0].clone()
        self.layer = Layer(
            draw.normal(channels, shape.width, dtype=dtype, scale=0.5),
            draw.normal(shape.value_heads).exp().log1p(),
            draw.normal(shape.value_heads),
        )
        spare = 3
        pool = draw.normal(shape.slots + spare, shape.value_heads, shape.key_dim, shape.value_dim)
        table = draw.permutation(shape.slots + spare)[: shape.slots].int()
        if shape.padded_slots:
            table[shape.rows - shape.padded_slots : shape.rows] = -1
        window = draw.normal(channels, shape.width - 1 + shape.slots - 1, dtype=dtype)
        self.before = (window, pool)
        self.empty = False
        selector = torch.ones(1, dtype=torch.int32, device=device)
        self.state = State(window.clone(), pool.clone(), table, selector)
        ends = (channels, channels + shape.value_heads, channels + 2 * shape.value_heads)
        self.qkv = self.packed[:, : ends[0]]
        self.a, self.b = self.packed[:, ends[0] : ends[1]], self.packed[:, ends[1] : ends[2]]
        self.problem = problem_of(self.qkv, self.a, self.b, self.layer, self.state)
        self.layers = {"live": [part.clone() for part in parts_of(self.layer)]}
        if halfway:
            self.rows["halfway"], self.layers["halfway"] = halfway_rows(shape, self.packed), plain_layer(self.layer)
        # Known to the host, because setting a state must not wait for the device.
        self.named = [int(slot) for slot in table]
        self.written = self.named[: shape.rows]
        # On the device, because a run may be captured: indexing with a list would copy from the host.
        self.live_slots = table[: shape.rows][table[: shape.rows] >= 0].long()

    def set_state(self, state: str) -> None:
        self.packed.copy_(self.rows.get(state, self.live))
        selector = int(state.removeprefix("selector-")) if state.startswith("selector-") else 1
        if self.named[selector - 1] < 0:
            selector = 1
        self.state.selector.fill_(selector)
        for part, value in zip(parts_of(self.layer), self.layers.get(state, self.layers["live"]), strict=True):
            part.copy_(value)
        self.empty = state == "halfway"
        self.rewind()

    def least_equal(self, state: str) -> float | None:
        return 1.0 if state == "halfway" else None

    def rewind(self) -> None:
        """Undo what a run wrote, in place."""
        self.state.window.copy_(self.before[0])
        self.state.pool.copy_(self.before[1])
        if self.empty:
            self.state.pool[self.live_slots] = 0.0

    def launch(self, schedule: Schedule) -> Tensor:
        return schedule.run(self.qkv, self.a, self.b, self.layer, self.state)

    def run(self, schedule: Schedule) -> Outputs:
        self.rewind()
        return {"out": self.launch(schedule), **self.left_behind()}

    def left_behind(self) -> Outputs:
        states = self.state.pool.index_select(0, self.live_slots)
        return {"states": states, "window": self.state.window.clone(), "pool": self.state.pool.clone()}

    def expected(self) -> Outputs:
        self.rewind()
        want = OP.reference(self.qkv, self.a, self.b, self.layer, self.state)
        live = [row for row, slot in enumerate(self.written) if slot >= 0]
        return {"out": want.out, "states": want.states[live], "window": want.window}

    def untouched(self, outputs: Outputs) -> str | None:
        retired = [slot for slot in range(len(self.before[1])) if slot not in self.written]
        change = first_difference(outputs["pool"][retired], self.before[1][retired])
        return f"a slot this run does not own changed: {change}" if change else None


def parts_of(layer: Layer) -> tuple[Tensor, Tensor, Tensor]:
    return layer.conv_weight, layer.a_log, layer.dt_bias


def plain_layer(layer: Layer) -> list[Tensor]:
    """The convolution passes its input on, and no state decays: with open gates, all of GDN is exact in FP32."""
    weight, a_log, dt_bias = (torch.zeros_like(part) for part in parts_of(layer))
    weight[:, -1] = 1.0
    return [weight, a_log, dt_bias]


def halfway_rows(shape: Shape, like: Tensor) -> Tensor:
    """Rows whose outputs lie halfway between two 16-bit values, where both round to even or to odd.

    Queries see the first two keys, each a direction of its own, half and half; the second value is half a step of the
    first's plus whole steps, as long as SiLU gives it back.
    """
    rows, keys = torch.zeros_like(like), shape.key_heads * shape.key_dim
    query, key, value = rows[:, :keys], rows[:, keys : 2 * keys], rows[:, 2 * keys :]
    query.unflatten(1, (-1, shape.key_dim))[..., :4] = 64.0
    for row in range(shape.rows):
        key.unflatten(1, (-1, shape.key_dim))[row, :, row % shape.key_dim] = 64.0
    size = shape.value_heads * shape.value_dim
    step = 2.0**15 * max(torch.finfo(like.dtype).eps, 2.0**-10)
    value[0, :size] = 2.0**15
    if shape.rows > 1:
        value[1, :size] = (torch.arange(size, device=like.device) % 4 + 1.5) * step
    # In floating point of 32 bits nothing is halfway and all is exact.
    a, b = value[:, size : size + shape.value_heads], value[:, size + shape.value_heads : size + 2 * shape.value_heads]
    a.fill_(-1e4)
    b.fill_(64.0)
    return rows


def case(shape: Shape, device: str = "cpu") -> Case:
    heads = f"h{shape.key_heads}/{shape.value_heads}x{shape.key_dim}x{shape.value_dim}"
    tail = (f"-rowpad{shape.row_pad}" if shape.row_pad else "") + (
        f"-pad{shape.padded_slots}" if shape.padded_slots else ""
    )
    return Case(f"r{shape.rows}-{heads}-{shape.dtype}{tail}", partial(GdnTrial, shape), device)


CPU = (
    *(case(Shape(rows)) for rows in range(1, 9)),
    case(Shape(8, 1, 1, 8, 24)),
    case(Shape(8, 1, 3, 32, 40, "float16", row_pad=5)),
    case(Shape(5, 1, 2, 128, 128, "bfloat16", row_pad=8)),
    case(Shape(8, 2, 4, 16, 16, padded_slots=2)),
    case(Shape(4, 2, 4, 16, 16, slots=16)),
    case(Shape(3, 1, 2, 16, 24, "bfloat16")),
    case(Shape(8, 1, 2, 64, 16, "float16")),
)
CUDA = (
    *(case(Shape(rows, 4, 12, 128, 128, "float16", row_pad=8), "cuda") for rows in range(1, 9)),
    case(Shape(8, 8, 24, 128, 128, "float16", row_pad=16), "cuda"),
    case(Shape(8, 16, 48, 128, 128, "float16", row_pad=32), "cuda"),
    case(Shape(8, 16, 48, 128, 128, "bfloat16"), "cuda"),
    case(Shape(8, 4, 12, 128, 128, "float16", row_pad=8, padded_slots=2), "cuda"),
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[4], CUDA[7], CUDA[11])
HAMMERED = (CUDA[7], CUDA[9])

# What one pass over a model's layers costs: (problem, distinct layers) by device.
WORKING_SETS = {
    "cpu": ((case(Shape(8, 2, 6, 64, 64)), 12),),
    "cuda": ((case(Shape(8, 4, 12, 128, 128, "float16", row_pad=8), "cuda"), 48),),
}

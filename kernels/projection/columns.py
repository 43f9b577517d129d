"""Column-tiled projection in torch, whose bits depend on neither the tile nor the number of rows.

Each tile forms the FP32 products `x[m, k] * w[n, k]` and sums the contiguous K axis of that array. torch reduces a
contiguous axis per output, in an order that depends on K alone, and splits work among threads only between outputs
as long as there is more than one; padding the last tile to `LANES` columns keeps that so. A GEMM gives no such
promise: on small shapes the library picks another kernel for another tile, with other bits.

The price is an [M, tile, K] array of products per tile, so this is a schedule for verification, not for prefill.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kernels.native.machine import CPU
from kernels.projection.problem import Problem
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight

LANES = 32
MAX_ROWS = 16


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(problem.weight_format == "dense", f"weight format {problem.weight_format!r}; only 'dense'"),
            refuse_unless(1 <= problem.m <= MAX_ROWS, f"{problem.m} rows; 1 to {MAX_ROWS}"),
        )
    )


def run(x: torch.Tensor, weight: Weight, wide: bool = False, *, tile: int) -> torch.Tensor:
    """`x` [M, K], weight [N, K] -> [M, N], `tile` output columns at a time."""
    import torch  # on first use, so that listing schedules does not load it

    (m, k), n, w = x.shape, weight.n, weight.dequantised()
    rows, out = x.float()[:, None, :], x.new_empty(m, n, dtype=torch.float32)
    width = min(tile, -(-n // LANES) * LANES)
    products = rows.new_empty(m, width, k)
    for first in range(0, n, width):
        columns = w[first : first + width].float()
        count = columns.shape[0]
        padded = products[:, : -(-count // LANES) * LANES]
        torch.mul(rows, columns, out=padded[:, :count])
        out[:, first : first + count] = padded.sum(-1)[:, :count]
    return out if wide else out.to(x.dtype)


COLUMNS_32 = Schedule(
    name="columns-32",
    revision=1,
    contract=Bound(
        rel_l2=4e-3, float32=1e-5, statement="FP32 products, summed over K in an order fixed by K, one rounding"
    ),
    guard=guard,
    run=partial(run, tile=32),
    machine=CPU,
    summary="torch, 32 output columns at a time",
)
COLUMNS_128 = Schedule(
    name="columns-128",
    revision=1,
    contract=Bitwise(parent="columns-32"),
    guard=guard,
    run=partial(run, tile=128),
    machine=CPU,
    summary="torch, 128 output columns at a time",
)

"""The FP8 layout of the `fp8-stream` schedules: what a lane feeds to the tensor cores lies together.

A unit is 256 weight rows x 128 k, 32 768 bytes. Units follow one another along K, then along N; rows beyond the
weight's are zero. Inside a unit:

    codes   [16 row tiles][2 k tiles][row g, row g + 8][32 lanes][16 k]    E4M3 bytes, lane = 4 g + c

A lane holds the 16 consecutive k at 16 c of its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.projection.packing import UNIT_K, UNIT_ROWS, interleaved, row_blocks

if TYPE_CHECKING:
    import torch

    from kernels.projection.fp8 import Fp8Weight

UNIT_BYTES = UNIT_ROWS * UNIT_K


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Code bytes uint8 [N, K], K a multiple of 128 -> uint8 [blocks, units, bytes]."""
    rows, k = codes.shape
    assert k % UNIT_K == 0, f"{k} input channels are no multiple of {UNIT_K}"
    blocks = row_blocks(rows)
    units = codes.new_empty(blocks, k // UNIT_K, UNIT_BYTES)
    for block in range(blocks):
        part = codes[block * UNIT_ROWS : (block + 1) * UNIT_ROWS]
        if len(part) < UNIT_ROWS:
            part, short = codes.new_zeros(UNIT_ROWS, k), part
            part[: len(short)] = short
        # row tile, half, g, unit, k tile, c, k -> unit, row tile, k tile, half, g, c, k
        lanes = part.view(16, 2, 8, k // UNIT_K, 2, 4, 16).permute(3, 0, 4, 1, 2, 5, 6)
        units[block] = lanes.reshape(-1, UNIT_BYTES)
    return units


def unpack(units: torch.Tensor, n: int) -> torch.Tensor:
    """The first `n` rows' code bytes [n, K]; undoes `pack`."""
    blocks, k_units, _ = units.shape
    lanes = units.view(blocks, k_units, 16, 2, 2, 8, 4, 16).permute(0, 2, 4, 5, 1, 3, 6, 7)
    return lanes.reshape(blocks * UNIT_ROWS, -1)[:n]


def layout(weight: Fp8Weight) -> torch.Tensor:
    return pack(_bytes(weight))


def gated_layout(weight: Fp8Weight) -> torch.Tensor:
    """Of a weight whose first half of the rows are gates and the second half their ups."""
    return pack(interleaved(_bytes(weight)))


def _bytes(weight: Fp8Weight) -> torch.Tensor:
    # As bytes: torch moves few float8 tensors on every device.
    return weight.codes.view(weight.codes.new_empty(0).byte().dtype)

"""The NVFP4 layout of the `nvfp4-stream` schedules: what a lane feeds to the tensor cores lies together.

A unit is 256 weight rows x 128 k: 16 384 code bytes, then 2048 scale bytes, contiguous. Units follow one another along
K, then along N; rows beyond the weight's are zero. Inside a unit:

    codes   [16 row tiles][2 k tiles][32 lanes][row g, row g + 8][2 words]    uint32, lane = 4 g + c
    scales  [8 pairs of row tiles][32 lanes][2 k tiles][2 row tiles][row g, row g + 8]    E4M3 bytes

A lane holds the 16 consecutive k at 16 c of its rows, one scale group each. A word holds eight codes as pairs of
neighbours, element 0 in the low and element 1 in the high half; `POSITIONS` places sign and magnitude of each pair so
that masks and shifts turn it into an FP16 pair of value x 2^-14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.projection import nvfp4

if TYPE_CHECKING:
    import torch

    from kernels.projection.nvfp4 import Nvfp4Weight

UNIT_ROWS, UNIT_K = 256, 128
CODE_BYTES, SCALE_BYTES = UNIT_ROWS * UNIT_K // 2, UNIT_ROWS * UNIT_K // nvfp4.GROUP
BLOCKS_AT_ONCE = 8  # what an intermediate of 64-bit integers may cost
# Of pairs 0..3: the bit of the sign, and of the lowest magnitude bit.
POSITIONS = ((15, 9), (12, 6), (14, 3), (13, 0))


def row_blocks(rows: int) -> int:
    return -(-rows // UNIT_ROWS)


def interleaved(rows: torch.Tensor) -> torch.Tensor:
    """Rows [2 I, ...], gate over up, as tiles of 16: gate, up, gate, up. `I` is filled up to a multiple of 128."""
    half = rows.shape[0] // 2
    filled = -(-half // (UNIT_ROWS // 2)) * (UNIT_ROWS // 2)
    tiles = rows.new_zeros(filled // 16, 2, 16, *rows.shape[1:])
    for part in range(2):
        flat = rows.new_zeros(filled, *rows.shape[1:])
        flat[:half] = rows[part * half : (part + 1) * half]
        tiles[:, part] = flat.unflatten(0, (-1, 16))
    return tiles.flatten(0, 2)


def _filled(rows: torch.Tensor) -> torch.Tensor:
    short = row_blocks(rows.shape[0]) * UNIT_ROWS - rows.shape[0]
    return (
        rows
        if not short
        else rows.new_zeros(rows.shape[0] + short, rows.shape[1]).index_copy_(
            0, rows.new_ones(rows.shape[0]).long().cumsum(0) - 1, rows
        )
    )


def _words(codes: torch.Tensor) -> torch.Tensor:
    """Codes [..., 8] -> int32 [...]."""
    words = codes.new_zeros(codes.shape[:-1]).long()
    for pair, (sign, magnitude) in enumerate(POSITIONS):
        for element in range(2):
            code = codes[..., 2 * pair + element].long()
            words |= (code >> 3) << (sign + 16 * element) | (code & 7) << (magnitude + 16 * element)
    return words.where(words < 1 << 31, words - (1 << 32)).int()


def _codes(words: torch.Tensor) -> torch.Tensor:
    """int32 [...] -> codes uint8 [..., 8]; undoes `_words`."""
    codes = words.new_empty(*words.shape, 8).byte()
    wide = words.long()
    for pair, (sign, magnitude) in enumerate(POSITIONS):
        for element in range(2):
            shifted = wide >> 16 * element
            codes[..., 2 * pair + element] = ((shifted >> sign & 1) << 3 | shifted >> magnitude & 7).byte()
    return codes


def pack(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Checkpoint bytes [N, K / 2] and E4M3 scales [N, K / 16], K a multiple of 128 -> uint8 [blocks, units, bytes]."""
    k_units = packed.shape[1] * 2 // UNIT_K
    assert packed.shape[1] * 2 == k_units * UNIT_K, f"{packed.shape[1] * 2} input channels are no multiple of {UNIT_K}"
    codes_of, scales_of = _filled(packed), _filled(scales.view(packed.dtype))
    blocks = row_blocks(packed.shape[0])
    units = packed.new_empty(blocks, k_units, CODE_BYTES + SCALE_BYTES)
    for first in range(0, blocks, BLOCKS_AT_ONCE):
        some = slice(first, min(first + BLOCKS_AT_ONCE, blocks))
        rows = slice(some.start * UNIT_ROWS, some.stop * UNIT_ROWS)
        # block, row tile, half, g, unit, k tile, c, word, code -> block, unit, row tile, k tile, g, c, half, word, code
        codes = nvfp4.unpack(codes_of[rows]).view(-1, 16, 2, 8, k_units, 2, 4, 2, 8).permute(0, 4, 1, 5, 3, 6, 2, 7, 8)
        words = _words(codes).contiguous().view(packed.dtype)
        units[some, :, :CODE_BYTES] = words.view(-1, k_units, CODE_BYTES)
        # block, pair, row tile, half, g, unit, k tile, c -> block, unit, pair, g, c, k tile, row tile, half
        its = scales_of[rows].view(-1, 8, 2, 2, 8, k_units, 2, 4).permute(0, 5, 1, 4, 7, 6, 2, 3)
        units[some, :, CODE_BYTES:] = its.reshape(-1, k_units, SCALE_BYTES)
    return units


def unpack(units: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `n` rows' packed codes [n, K / 2] and scale bytes [n, K / 16]; undoes `pack`."""
    blocks, k_units, _ = units.shape
    words = units[..., :CODE_BYTES].contiguous().view(_int32(units)).view(blocks, k_units, 16, 2, 8, 4, 2, 2)
    # block, unit, row tile, k tile, g, c, half, word, code -> block, row tile, half, g, unit, k tile, c, word, code
    codes = _codes(words).permute(0, 2, 6, 4, 1, 3, 5, 7, 8).reshape(blocks * UNIT_ROWS, k_units * UNIT_K)
    scales = units[..., CODE_BYTES:].reshape(blocks, k_units, 8, 8, 4, 2, 2, 2)
    # block, unit, pair, g, c, k tile, row tile, half -> block, pair, row tile, half, g, unit, k tile, c
    scales = scales.permute(0, 2, 6, 7, 3, 1, 5, 4).reshape(blocks * UNIT_ROWS, k_units * UNIT_K // nvfp4.GROUP)
    return nvfp4.pack(codes[:n]), scales[:n]


def _int32(tensor: torch.Tensor) -> torch.dtype:
    return tensor.new_empty(0).int().dtype


def layout(weight: Nvfp4Weight) -> torch.Tensor:
    return pack(weight.packed, weight.scales)


def gated_layout(weight: Nvfp4Weight) -> torch.Tensor:
    """Of a weight whose first half of the logical rows are gates and the second half their ups."""
    packed, scales = (part[: weight.n].view(weight.packed.dtype) for part in (weight.packed, weight.scales))
    return pack(interleaved(packed), interleaved(scales))

"""The streamed NVFP4 layout: reversible, hashed alike, and read by the kernel's own bit tricks as the exact weight."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from kernels.projection import packing
from kernels.projection.nvfp4 import Nvfp4Weight, decode, padded

MASK, SIGN, MAGNITUDE = 0x8E008E00, 0x80008000, 0x0E000E00


def weight(n: int, k: int, seed: int = 0) -> Nvfp4Weight:
    draw = torch.Generator().manual_seed(seed)
    packed = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, generator=draw)
    scales = (torch.rand(n, k // 16, generator=draw) * 440).to(torch.float8_e4m3fn)
    return Nvfp4Weight(packed, scales, 3.0, n)


@pytest.mark.parametrize("n, k", [(16, 128), (256, 128), (544, 384), (2305, 256)])
def test_packing_is_undone(n: int, k: int) -> None:
    original = padded(weight(n, k), 16)
    units = packing.layout(original)
    assert units.shape == (-(-n // 256), k // 128, 18432)
    packed, scales = packing.unpack(units, original.physical_n)
    back = Nvfp4Weight(packed, scales.view(torch.float8_e4m3fn), 3.0, n)
    assert back.sha256() == original.sha256()
    assert units.unique().numel() > 200, "random weights must not pack to a few values"


def test_rows_past_the_weight_are_zero() -> None:
    units = packing.layout(weight(16, 128))
    _, scales = packing.unpack(units, 256)
    codes, _ = packing.unpack(units, 256)
    assert not codes[16:].any() and not scales[16:].any()


def test_a_width_that_units_do_not_divide_is_refused() -> None:
    with pytest.raises(AssertionError, match="192 input channels are no multiple of 128"):
        packing.layout(weight(16, 192))


def half_pairs(word: int) -> list[int]:
    """What the kernel's masks and shifts make of a word: four pairs of FP16 bit patterns."""
    shifted = [word << s for s in (0, 3, 1, 6, 2, 9)]
    return [
        shifted[0] & MASK,
        shifted[1] & MASK,
        (shifted[2] & SIGN) | (shifted[3] & MAGNITUDE),
        (shifted[4] & SIGN) | (shifted[5] & MAGNITUDE),
    ]


def fp16(bits: int) -> float:
    return float(torch.tensor(bits - (bits >> 15 << 16), dtype=torch.int16).view(torch.float16))


def test_a_lane_decodes_its_rows_exactly() -> None:
    """Every lane of two tiles, both rows, all sixteen k: bit tricks times scale is code times scale."""
    n, k = 256, 256
    one = weight(n, k, seed=5)
    exact = decode(one.packed, one.scales.float())
    units = packing.layout(one)[0]
    words = units[:, : packing.CODE_BYTES].contiguous().view(torch.int32).view(2, 16, 2, 32, 2, 2)
    scales = units[:, packing.CODE_BYTES :].reshape(2, 8, 32, 2, 2, 2)
    for tile, lane, half, word in product((3, 12), range(32), range(2), range(2)):
        scale = float(scales[1, tile // 2, lane, 1, tile % 2, half].view(torch.float8_e4m3fn))
        row, first = tile * 16 + half * 8 + lane // 4, 128 + 64 + lane % 4 * 16 + word * 8
        pairs = half_pairs(int(words[1, tile, 1, lane, half, word]) & 0xFFFFFFFF)
        values = [fp16(pair >> 16 * e & 0xFFFF) * 2.0**14 * scale for pair in pairs for e in (0, 1)]
        assert values == exact[row, first : first + 8].tolist()


def test_a_decoded_product_is_exact_in_fp16() -> None:
    """All codes times all finite scales, at the kernel's 2^-14."""
    codes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]).double()
    scales = torch.arange(0, 127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    products = codes[:, None] * 2.0**-14 * scales
    assert torch.equal(products.half().double(), products)


def test_gated_tiles_alternate() -> None:
    rows = torch.arange(2 * 200)[:, None]
    tiles = packing.interleaved(rows).view(-1, 2, 16)
    assert tiles.shape == (16, 2, 16)
    flat = tiles.transpose(0, 1).reshape(2, -1)
    assert torch.equal(flat[0, :200], torch.arange(200)) and torch.equal(flat[1, :200], torch.arange(200, 400))
    assert not flat[:, 200:].any()

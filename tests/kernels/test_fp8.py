"""The FP8 format against numpy: all codes, exact products, the quantiser, the layout, and both operators' sums."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from kernels import gated, projection
from kernels.projection import fp8, fp8_packing
from kernels.projection.fp8 import Fp8Weight

E4M3 = torch.float8_e4m3fn


def e4m3(codes: np.ndarray) -> np.ndarray:
    """FP64 values of bytes by definition: sign, four bits of exponent with bias 7, three of mantissa, no infinities."""
    bits = codes.astype(np.int64)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    normal, subnormal = (1 + mantissa / 8) * 2.0 ** (exponent - 7), mantissa / 8 * 2.0**-6
    return np.where(bits >> 7, -1.0, 1.0) * np.where(exponent == 0, subnormal, normal)


def drawn(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x FP16 [m, k], codes uint8 [n, k] without those that are no number, and scales FP32 [n] of many magnitudes."""
    draw = np.random.default_rng(n * k + m)
    codes = draw.integers(0, 127, (n, k)) | draw.integers(0, 2, (n, k)) << 7
    scales = 2.0 ** draw.uniform(-14, -9, n)
    return draw.normal(size=(m, k)).astype(np.float16), codes.astype(np.uint8), scales.astype(np.float32)


def weight_of(codes: np.ndarray, scales: np.ndarray) -> Fp8Weight:
    return Fp8Weight(torch.from_numpy(codes).view(E4M3), torch.from_numpy(scales))


def test_every_code_is_its_value_and_exact_in_16_bits() -> None:
    codes = np.array([code for code in range(256) if code & 0x7F != 0x7F], dtype=np.uint8)[None]
    weight = weight_of(codes, np.ones(1, np.float32))
    for dtype in (None, torch.float16, torch.bfloat16):
        assert np.array_equal(weight.products(dtype=dtype).double().numpy(), e4m3(codes))


def test_the_quantiser_takes_the_nearest_code_and_keeps_zeros() -> None:
    w = np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32)
    w[7] = 0
    weight = fp8.quantise(torch.from_numpy(w))
    values, scales = weight.dequantised().numpy(), weight.scales.numpy()[:, None]
    spacing = scales * np.maximum(2.0 ** (np.floor(np.log2(np.maximum(np.abs(w / scales), 2.0**-20))) - 3), 2.0**-9)
    assert (np.abs(values - w) <= spacing * 0.5001).all() and not values[7].any()


@pytest.mark.parametrize(("n", "k"), ((256, 128), (300, 384)))
def test_the_layout_is_undone(n: int, k: int) -> None:
    _, codes, scales = drawn(1, n, k)
    units = fp8_packing.layout(weight_of(codes, scales))
    assert units.shape == (-(-n // 256), k // 128, 32768)
    assert np.array_equal(fp8_packing.unpack(units, n).numpy(), codes)
    assert not fp8_packing.unpack(units, len(units) * 256)[n:].any()


def test_a_lane_holds_sixteen_neighbours_of_its_two_rows() -> None:
    """As `nvfp4_stream.cu` addresses them: row tile, k tile, half, lane 4 g + c."""
    _, codes, scales = drawn(1, 256, 256)
    units = fp8_packing.layout(weight_of(codes, scales)).view(2, 16, 2, 2, 32, 16).numpy()
    for tile, half, lane in product((0, 9), range(2), range(32)):
        row, first = tile * 16 + half * 8 + lane // 4, 128 + 64 + lane % 4 * 16
        assert np.array_equal(units[1, tile, 1, half, lane], codes[row, first : first + 16])


def test_a_width_that_units_do_not_divide_is_refused() -> None:
    with pytest.raises(AssertionError, match="192 input channels are no multiple of 128"):
        fp8_packing.layout(weight_of(*drawn(1, 16, 192)[1:]))


def schedules(op, x, weight):
    return [schedule for schedule in op.schedules if schedule.refusal(projection.problem_of(x, weight)) is None]


def check_projection(m: int, n: int, k: int, device: str, least: int) -> None:
    x, codes, scales = drawn(m, n, k)
    weight = weight_of(codes, scales)
    rows, weight = torch.from_numpy(x).to(device), Fp8Weight(weight.codes.to(device), weight.scales.to(device))
    want = x.astype(np.float64) @ (e4m3(codes) * scales.astype(np.float64)[:, None]).T
    took = schedules(projection.OP, rows, weight)
    assert len(took) >= least
    for schedule in took:
        sums = schedule.run(rows, weight, True).double().cpu().numpy()
        assert np.linalg.norm(sums - want) <= 1e-5 * np.linalg.norm(want), schedule.name
        rounded = schedule.run(rows, weight).double().cpu().numpy()
        assert (np.abs(rounded - want) <= np.abs(want) * 2**-10 + 1e-3).all(), schedule.name


def check_gated(m: int, n: int, k: int, device: str, least: int) -> None:
    x, codes, scales = drawn(m, 2 * n, k)
    weight = weight_of(codes, scales)
    rows, weight = torch.from_numpy(x).to(device), Fp8Weight(weight.codes.to(device), weight.scales.to(device))
    both = (x.astype(np.float64) @ (e4m3(codes) * scales.astype(np.float64)[:, None]).T).astype(np.float16)
    gate, up = both[:, :n].astype(np.float64), both[:, n:].astype(np.float64)
    want = (gate / (1 + np.exp(-gate))).astype(np.float16) * up
    took = schedules(gated.OP, rows, weight)
    assert len(took) >= least
    for schedule in took:
        found = schedule.run(rows, weight).double().cpu().numpy()
        assert np.linalg.norm(found - want) <= 2e-3 * np.linalg.norm(want), schedule.name


NATIVE = 1 if projection.OP.schedule("cpu-dot").refusal(projection.Problem(1, 8, 8)) else 3


@pytest.mark.parametrize(("m", "n", "k"), ((8, 33, 128), (3, 7, 91)))
def test_projections_on_a_cpu_are_numpys(m: int, n: int, k: int) -> None:
    check_projection(m, n, k, "cpu", NATIVE)


@pytest.mark.parametrize(("m", "n", "k"), ((8, 33, 128), (3, 7, 91)))
def test_gated_projections_on_a_cpu_are_numpys(m: int, n: int, k: int) -> None:
    check_gated(m, n, k, "cpu", NATIVE)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("m", "n", "k"), ((8, 545, 1024), (1, 16480, 5120)))
def test_on_a_gpu_they_are_numpys(m: int, n: int, k: int) -> None:
    check_projection(m, n, k, "cuda", 2)
    check_gated(m, n, k, "cuda", 2)

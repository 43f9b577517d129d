"""The NVFP4 format: all codes and scales, exactness of the products, rounding of the quantiser, padding."""

from __future__ import annotations

import pytest
import torch

from kernels.projection import OP, nvfp4
from kernels.projection.nvfp4 import MAGNITUDES, Nvfp4Weight, decode, nearest_codes, pack, padded, quantise, unpack

E4M3 = torch.float8_e4m3fn


@pytest.mark.parametrize("exponent", [-20, -34, -35, -36, -37, -38, -39, -40])
def test_the_quantiser_keeps_weights_down_to_subnormal_ones(exponent):
    """Against FP64: half the widest step of E2M1 and the rounding of a group's scale."""
    w = (torch.randn(4, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 10.0**exponent).float()
    weight = quantise(w)
    assert 0 < weight.global_scale <= torch.finfo(torch.float32).max
    codes = torch.tensor([*MAGNITUDES, *(-m for m in MAGNITUDES)], dtype=torch.float64)[unpack(weight.packed).long()]
    values = codes * weight.scales.double().repeat_interleave(16, 1) / weight.global_scale
    top = w.double().unflatten(1, (-1, 16)).abs().amax(-1).repeat_interleave(16, 1)
    assert ((values - w.double()).abs() <= top / 5).all() and (values != 0).any(1).all()


def every_product() -> tuple[torch.Tensor, torch.Tensor]:
    """Packed codes [256, 8] and FP32 scales [256, 1]: all 16 codes against all 256 bytes of E4M3."""
    codes = torch.arange(16, dtype=torch.uint8).expand(256, 16)
    return pack(codes), torch.arange(256, dtype=torch.uint8).view(E4M3)[:, None].float()


def e4m3_value(byte: int) -> float:
    """E4M3FN from its bits: 4 exponent bits of bias 7, 3 mantissa bits, no infinities."""
    sign, exponent, mantissa = -1.0 if byte & 0x80 else 1.0, (byte >> 3) & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def test_decodes_all_16_codes_under_all_256_scales():
    got = decode(*every_product())
    signed = [*MAGNITUDES, *(-m for m in MAGNITUDES)]
    want = torch.tensor([[code * e4m3_value(byte) for code in signed] for byte in range(256)], dtype=torch.float64)
    assert torch.equal(got.double().nan_to_num(12345.0), want.nan_to_num(12345.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_products_are_exact_in_16_bits(dtype):
    packed, scales = every_product()
    products = decode(packed, scales)
    finite = products[products.isfinite()]
    assert torch.equal(decode(packed, scales.to(dtype)).float().nan_to_num(), products.nan_to_num())
    nonzero = finite[finite != 0].abs()
    assert nonzero.min() == 2.0**-10 and nonzero.max() == 2688


def test_packing_is_reversible():
    codes = torch.randint(0, 16, (5, 48), dtype=torch.uint8)
    assert torch.equal(unpack(pack(codes)), codes)
    assert pack(torch.tensor([[3, 10]]))[0, 0] == 3 | 10 << 4, "the even k is in the low half"


def test_nearest_code_rounds_to_nearest_even():
    values = torch.tensor([0.0, 0.25, 0.2501, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.01, 100.0, -0.75, -5.0])
    want = [0, 0, 1, 2, 2, 4, 4, 6, 6, 7, 7, 10, 14]
    assert nearest_codes(values).tolist() == want


def test_quantising_representable_weights_is_lossless():
    codes, scales = torch.randint(0, 16, (32, 64), dtype=torch.uint8), torch.full((32, 4), 2.0).to(E4M3)
    codes[:, ::16] = 7  # every group reaches 6, so its scale is determined
    scales[0, 0] = torch.tensor(448.0).to(E4M3)
    exact = decode(pack(codes), scales.float()) / 64.0
    again = quantise(exact)
    assert torch.equal(again.dequantised(), exact)


def test_quantisation_error_and_zero_groups():
    w = torch.randn(64, 256, generator=torch.Generator().manual_seed(5))
    w[3, 16:32] = 0
    got = quantise(w).dequantised()
    assert torch.equal(got[3, 16:32], torch.zeros(16))
    error = float((got - w).norm() / w.norm())
    assert 0.05 < error < 0.12, error


def test_an_all_zero_weight_stays_zero():
    assert torch.equal(quantise(torch.zeros(2, 32)).dequantised(), torch.zeros(2, 32))


@pytest.mark.parametrize(("n", "multiple", "physical"), [(4120, 16, 4128), (8240, 32, 8256), (4128, 16, 4128)])
def test_padding_is_physical_and_cropping_logical(n, multiple, physical):
    weight = quantise(torch.randn(n, 32))
    wide = padded(weight, multiple)
    assert (wide.n, wide.physical_n) == (n, physical)
    assert wide.sha256() == weight.sha256()
    assert torch.equal(wide.dequantised(), weight.dequantised())
    assert not wide.products()[n:].any()
    x = torch.randn(3, 32)
    assert torch.equal(OP.schedule("dense").run(x, wide), OP.schedule("dense").run(x, weight))


def test_the_hash_sees_codes_scales_and_divisor():
    weight = quantise(torch.randn(16, 32))
    for part in ("packed", "scales"):
        changed = Nvfp4Weight(weight.packed.clone(), weight.scales.clone(), weight.global_scale, weight.n)
        getattr(changed, part).view(torch.uint8)[3, 1] ^= 1
        assert changed.sha256() != weight.sha256()
    assert Nvfp4Weight(weight.packed, weight.scales, 2.0, weight.n).sha256() != weight.sha256()


def test_layouts_are_made_once():
    weight, made = quantise(torch.randn(16, 32)), []
    for _ in range(2):
        weight.layout("mine", lambda w: made.append(w.n))
    assert made == [16]


def test_wrong_shapes_are_named():
    weight = quantise(torch.randn(16, 32))
    with pytest.raises(AssertionError, match="scales"):
        nvfp4.Nvfp4Weight(weight.packed, weight.scales[:, :1], 1.0, 16)
    with pytest.raises(AssertionError, match="17 logical columns of 16"):
        nvfp4.Nvfp4Weight(weight.packed, weight.scales, 1.0, 17)

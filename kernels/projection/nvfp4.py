"""The NVFP4 format: 4-bit E2M1 codes, an E4M3 scale per 16 of them along K, one FP32 divisor for the whole weight.

    w[n, k] = E2M1(code[n, k]) * E4M3(scale[n, k // 16]) / global_scale

A code is a sign bit over three magnitude bits; two codes share a byte, the even k in its low half (the
`nvfp4-pack-quantized` layout of compressed-tensors). E2M1 has 2 significant bits and E4M3 has 4, so code times scale
needs at most 6 and lies, unless zero, in [2^-10, 2688]: exact in FP16, BF16 and FP32. Only the division rounds.

A tensor-parallel rank holds widths such as 4120 or 8240 that no tile divides. `padded` adds physical rows of zeros;
`n` stays the logical width, results are cropped to it, and native schedules refuse a width that was not padded.
Knows no checkpoint names and no device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

GROUP = 16
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1_MAX, E4M3_MAX = 6.0, 448.0
FLOAT32_MAX = 3.4028234663852886e38


@dataclass(frozen=True, eq=False)
class Nvfp4Weight:
    """`packed` uint8 [rows, K / 2], `scales` float8_e4m3fn [rows, K / 16], rows >= `n`; `global_scale` divides."""

    packed: torch.Tensor
    scales: torch.Tensor
    global_scale: float
    n: int
    layouts: dict[str, Any] = field(default_factory=dict, repr=False)

    format = "nvfp4"
    dtype = "nvfp4"

    def __post_init__(self) -> None:
        rows, k = self.packed.shape[0], self.k
        assert k % GROUP == 0, f"{k} input channels are no multiple of the group of {GROUP}"
        assert self.scales.shape == (rows, k // GROUP), f"scales {tuple(self.scales.shape)} for {rows} x {k} codes"
        assert 0 < self.n <= rows, f"{self.n} logical columns of {rows} physical ones"
        assert self.global_scale > 0, f"global scale {self.global_scale} is not a positive divisor"

    @property
    def k(self) -> int:
        return self.packed.shape[1] * 2

    @property
    def physical_n(self) -> int:
        return self.packed.shape[0]

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        return self.packed, self.scales

    def products(self, first: int = 0, last: int | None = None, dtype: torch.dtype | None = None) -> torch.Tensor:
        """code times scale [last - first, K]: the weight before the division, padding included.

        Exact in FP32, the default, and in FP16 and BF16.
        """
        scales = self.scales[first:last].float()
        return decode(self.packed[first:last], scales if dtype is None else scales.to(dtype))

    def dequantised(self) -> torch.Tensor:
        """FP32 [n, K]; the division rounds once."""
        return self.products(0, self.n) / self.global_scale

    def layout(self, name: str, make: Callable[[Nvfp4Weight], Any]) -> Any:
        """A schedule's own packing of this weight, made on first use and kept: run once before a graph capture."""
        if name not in self.layouts:
            self.layouts[name] = make(self)
        return self.layouts[name]

    def sha256(self) -> str:
        """Identity of the logical weight: equal before and after padding, and after a packing is undone."""
        digest = hashlib.sha256(f"{self.n} {self.k} {self.global_scale!r}".encode())
        for part in (self.packed, self.scales):
            digest.update(part[: self.n].contiguous().view(-1).view(_uint8(part)).cpu().numpy().tobytes())
        return digest.hexdigest()


def _uint8(tensor: torch.Tensor) -> torch.dtype:
    return tensor.new_empty(0).byte().dtype


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Codes 0..15 [N, K] -> bytes [N, K / 2]."""
    codes = codes.byte()
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Bytes [N, K / 2] -> codes 0..15 uint8 [N, K]; undoes `pack`."""
    codes = packed.new_empty(packed.shape[0], packed.shape[1], 2)
    codes[..., 0], codes[..., 1] = packed & 15, packed >> 4
    return codes.flatten(1)


def decode(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """E2M1(code) times the scale of its group, [N, K] in the dtype of `scales`; a byte at a time, by table."""
    words = _words_of_bytes(scales.dtype, scales.device)
    groups = words[packed.int()].view(scales.dtype).unflatten(1, (-1, GROUP))
    return (groups * scales[..., None]).flatten(1)


@cache
def _words_of_bytes(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Both codes of each of the 256 bytes, the low one first, as one word of twice the width of `dtype`.

    Kept: a captured graph must not copy it from the host.
    """
    import torch  # on first use, so that listing schedules does not load it

    values = torch.tensor((*MAGNITUDES, *(-m for m in MAGNITUDES)), dtype=dtype, device=device)
    pairs = torch.stack((values.expand(16, 16), values[:, None].expand(16, 16)), -1)
    return pairs.flatten().view(torch.int32 if dtype.itemsize == 2 else torch.int64)


def nearest_codes(values: torch.Tensor) -> torch.Tensor:
    """The E2M1 code nearest to each value, ties to the even code, saturating at 6."""
    midpoints = [(low + high) / 2 for low, high in pairwise(MAGNITUDES)]
    magnitude, code = values.abs(), values.new_zeros(values.shape).byte()
    for index, midpoint in enumerate(midpoints):
        # From code `index` up to `index + 1`: a tie goes up only where that makes the code even.
        code += magnitude >= midpoint if index % 2 else magnitude > midpoint
    return code | ((values < 0).byte() << 3)


def quantise(w: torch.Tensor) -> Nvfp4Weight:
    """The nearest NVFP4 weight to a finite `w` [N, K]: the largest magnitude maps to 6 * 448, each group's to 6."""
    groups = w.float().unflatten(1, (-1, GROUP))
    largest = float(groups.abs().max())
    # A checkpoint stores it in FP32: below 1e-35 the largest group maps to less than 6 * 448.
    global_scale = min(E2M1_MAX * E4M3_MAX / largest, FLOAT32_MAX) if largest else 1.0
    scaled = groups * global_scale
    e4m3 = _e4m3_dtype()
    scales = (scaled.abs().amax(-1) / E2M1_MAX).clamp(max=E4M3_MAX).to(e4m3)
    # A group whose scale rounds to zero holds zeros; divide by anything.
    divisor = scales.float().masked_fill(scales.float() == 0, float("inf"))
    codes = nearest_codes(scaled / divisor[..., None]).flatten(1)
    return Nvfp4Weight(pack(codes), scales, global_scale, w.shape[0])


def _e4m3_dtype() -> torch.dtype:
    import torch  # on first use, so that listing schedules does not load it

    return torch.float8_e4m3fn


def padded_width(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def padded(weight: Nvfp4Weight, multiple: int) -> Nvfp4Weight:
    """The same logical weight with zero rows up to a multiple of `multiple` physical columns: 4120 -> 4128 for 16."""
    short = padded_width(weight.n, multiple) - weight.physical_n
    if short <= 0:
        return weight
    packed = weight.packed.new_zeros(weight.physical_n + short, weight.packed.shape[1])
    packed[: weight.physical_n] = weight.packed
    scale_bytes = weight.scales.view(_uint8(weight.scales))
    scales = scale_bytes.new_zeros(weight.physical_n + short, scale_bytes.shape[1])
    scales[: weight.physical_n] = scale_bytes
    return replace(weight, packed=packed, scales=scales.view(weight.scales.dtype), layouts={})

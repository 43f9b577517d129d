"""The FP8 format: an E4M3 code per weight, an FP32 scale per output row.

    w[n, k] = E4M3(code[n, k]) * scale[n]

It is `float-quantized` of compressed-tensors with a scale per channel; one scale for a whole tensor is the same in
every row. A code needs 4 significant bits and lies, unless zero, in [2^-9, 448]: exact in FP16, BF16 and FP32.
Schedules sum x times codes and apply the scale once, after the sum. Knows no checkpoint names and no device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

E4M3_MAX = 448.0
SMALLEST = 2.0**-126  # a scale below FP32's normal numbers would lose bits of its own


@dataclass(frozen=True, eq=False)
class Fp8Weight:
    """`codes` float8_e4m3fn [n, K], K contiguous; `scales` FP32 [n], positive."""

    codes: torch.Tensor
    scales: torch.Tensor
    layouts: dict[str, Any] = field(default_factory=dict, repr=False)

    format = "fp8"
    dtype = "float8_e4m3fn"

    def __post_init__(self) -> None:
        assert self.scales.shape == (self.n,), f"scales {tuple(self.scales.shape)} for {self.n} rows"

    @property
    def n(self) -> int:
        return self.codes.shape[0]

    @property
    def physical_n(self) -> int:
        return self.n

    @property
    def k(self) -> int:
        return self.codes.shape[1]

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        return self.codes, self.scales

    def products(self, first: int = 0, last: int | None = None, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The codes' values [last - first, K], exact in FP32, the default, in FP16 and in BF16."""
        codes = self.codes[first:last]
        return codes.float() if dtype is None else codes.to(dtype)

    def dequantised(self) -> torch.Tensor:
        """FP32 [n, K]; the product with the scale rounds once."""
        return self.products() * self.scales[:, None]

    def layout(self, name: str, make: Callable[[Fp8Weight], Any]) -> Any:
        """A schedule's own packing of this weight, made on first use and kept: run once before a graph capture."""
        if name not in self.layouts:
            self.layouts[name] = make(self)
        return self.layouts[name]

    def sha256(self) -> str:
        """Identity of the weight."""
        digest = hashlib.sha256(f"{self.n} {self.k}".encode())
        for part in self.parts:
            digest.update(part.contiguous().view(-1).view(_uint8(part)).cpu().numpy().tobytes())
        return digest.hexdigest()


def _uint8(tensor: torch.Tensor) -> torch.dtype:
    return tensor.new_empty(0).byte().dtype


def quantise(w: torch.Tensor) -> Fp8Weight:
    """The nearest FP8 weight to a finite `w` [N, K]: the largest magnitude of each row maps to 448."""
    import torch  # on first use, so that listing schedules does not load it

    scales = (w.float().abs().amax(-1) / E4M3_MAX).clamp(min=SMALLEST)
    return Fp8Weight((w.float() / scales[:, None]).to(torch.float8_e4m3fn), scales)

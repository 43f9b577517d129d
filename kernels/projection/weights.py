"""The containers a projection takes its weight in. They know shape and layout, not where they were loaded from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.projection.fp8 import Fp8Weight
from kernels.projection.nvfp4 import Nvfp4Weight

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class DenseWeight:
    """A weight `w` [N, K], K contiguous, in a floating dtype."""

    w: torch.Tensor

    format = "dense"

    @property
    def n(self) -> int:
        return self.w.shape[0]

    @property
    def physical_n(self) -> int:
        return self.w.shape[0]

    @property
    def k(self) -> int:
        return self.w.shape[1]

    @property
    def dtype(self) -> str:
        return str(self.w.dtype).removeprefix("torch.")

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        return (self.w,)

    def dequantised(self) -> torch.Tensor:
        return self.w


Weight = DenseWeight | Nvfp4Weight | Fp8Weight

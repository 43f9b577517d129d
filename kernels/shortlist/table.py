"""A head's weight with its 8-bit codes: what a shortlist reads instead of most of it.

    w[v, k] = scale[v, k // 128] * code[v, k] + e[v, k]        code an integer from -127 to 127, scale in BF16

By Cauchy and Schwarz the logit of v differs from that of its codes by at most |e[v]| |x|, whatever x is. `bound[v]` is
|e[v]| plus 2^-11 |w[v]| for the roundings of both FP32 sums: a sum on the tensor cores drops less than 2^-24 of the
largest operand for each of the 17 it adds at a time, 5440 such in 5120 products, the exact one rounds 165 times, and
8192 are granted. A row that is not finite has no bound: inf. Codes are made on first use and kept.

A unit is 128 rows x 128 k, contiguous: 16384 bytes of codes plus 128, then the rows' scales. Codes of 16 rows lie
together, 32 k at a time, 16 bytes a lane: of rows g and g + 8 the eight k from 8 c on, for lane 4 g + c.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ROWS = GROUP = 128
UNIT_BYTES = ROWS * GROUP + 2 * ROWS
ROUNDINGS = 2.0**-11
PIECE = 64  # row blocks made at a time


@dataclass(frozen=True, eq=False)
class Codes:
    """`units` uint8 [row blocks, k units, UNIT_BYTES]; `bound` FP32 [row blocks * 128], zero behind the last row.

    `counts` int64 [3] on the device: calls, rows of the weight read for them, and rows of x for which all of it was.
    """

    units: torch.Tensor
    bound: torch.Tensor
    counts: torch.Tensor


@dataclass(frozen=True, eq=False)
class Table:
    """The `weight` [V, K] of a head, K contiguous."""

    weight: torch.Tensor
    _made: list[Codes] = field(default_factory=list, init=False, repr=False)

    def codes(self) -> Codes:
        """Made on first use and kept: run once before a graph capture."""
        if not self._made:
            self._made.append(packed(self.weight))
        return self._made[0]


def quantised(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes int16 [N, K], scales FP32 [N, K / 128] that BF16 holds, bounds FP32 [N] of rows `w` [N, K]."""
    import torch  # on first use, so that listing schedules does not load it

    groups = w.float().unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1) / 127
    scale = ((scale.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)  # up to what BF16 holds
    scale = torch.where((scale > 0) & scale.isfinite(), scale, 1.0)
    codes = (groups / scale[..., None]).round().clamp(-127, 127).nan_to_num(0.0)
    error = (groups.double() - codes.double() * scale.double()[..., None]).flatten(-2).norm(dim=-1)
    bound = (error + ROUNDINGS * w.double().norm(dim=-1)) * (1 + 1e-6)
    return codes.flatten(-2).short(), scale, torch.where(bound.isfinite(), bound, float("inf")).float()


def packed(weight: torch.Tensor) -> Codes:
    """The units of `weight` [V, K], K a multiple of 128."""
    import torch

    n, k = weight.shape
    blocks, k_units = -(-n // ROWS), k // GROUP
    units = torch.empty(blocks, k_units, UNIT_BYTES, dtype=torch.uint8, device=weight.device)
    bound = torch.zeros(blocks * ROWS, device=weight.device)
    for first in range(0, blocks, PIECE):
        last = min(first + PIECE, blocks)
        rows = weight[first * ROWS : last * ROWS]
        codes, scale, bounds = quantised(rows)
        bound[first * ROWS : first * ROWS + len(rows)] = bounds
        short = (last - first) * ROWS - len(rows)
        codes = torch.nn.functional.pad(codes, (0, 0, 0, short))
        scale = torch.nn.functional.pad(scale, (0, 0, 0, short))
        # row = 16 warp + 8 half + g, k = 128 unit + 32 pair + 8 c + j
        split = (codes + 128).byte().view(last - first, 8, 2, 8, k_units, 4, 4, 8)
        units[first:last, :, : ROWS * GROUP] = split.permute(0, 4, 1, 5, 3, 6, 2, 7).flatten(2)
        by_unit = scale.view(last - first, ROWS, k_units).transpose(1, 2).contiguous()
        units[first:last, :, ROWS * GROUP :] = by_unit.bfloat16().view(torch.uint8)
    return Codes(units, bound, torch.zeros(3, dtype=torch.int64, device=weight.device))

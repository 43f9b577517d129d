"""The pieces both models are built from: projections, norms, rotary positions, gated MLP.

All take leading axes freely and are differentiable in their weights. They know no cache and no request.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import gated, norm, prefill_gated, prefill_projection, projection, rotary
from kernels.projection.fp8 import Fp8Weight
from kernels.projection.nvfp4 import Nvfp4Weight
from kernels.registry import Op
from runtime.models import quant
from runtime.operators import Operators

Weight = Tensor | Nvfp4Weight | Fp8Weight
"""A weight [N, K] as checkpoints hand it out: a dense tensor, NVFP4 or FP8 codes."""


class Linear:
    """A bias-free projection [.., K] -> [.., N]; `site` names it in audits.

    Through the `projection` operator, and with more rows than a verification has through `prefill_projection`.
    """

    def __init__(self, weight: Weight, operators: Operators, site: str) -> None:
        self.weight = projection.DenseWeight(weight) if isinstance(weight, Tensor) else weight
        self.operators = operators
        self.site = site
        self._problems: dict[Hashable, projection.Problem] = {}

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            return self.project(x, self.weight)
        return self.project(x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], self.weight.n)

    def project(self, rows: Tensor, weight: projection.Weight) -> Tensor:
        """`rows` [M, K] with this projection's weight, or with a copy of it that an audit has made."""
        return self.operators.run(self.site, _operator(rows), self.problem(rows), rows, weight)

    def share(self, rows: Tensor, weight: projection.Weight) -> Tensor:
        """The same in FP32, not rounded: a rank's share of a product, a head's logits."""
        return self.operators.run(self.site, _operator(rows), self.problem(rows, wide=True), rows, weight, True)

    def problem(self, rows: Tensor, wide: bool = False) -> projection.Problem:
        key = (rows.shape[0], rows.stride(0), rows.dtype, wide)
        problem = self._problems.get(key)
        if problem is None:
            problem = self._problems[key] = projection.problem_of(rows, self.weight, wide)
        return problem


def _operator(rows: Tensor) -> Op:
    return prefill_projection.OP if prefill_projection.takes(rows) else projection.OP


class SideBySide:
    """Several projections of one input, their outputs side by side."""

    def __init__(self, parts: Sequence[Linear]) -> None:
        self.parts = tuple(parts)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)


def fused(parts: Sequence[Weight], operators: Operators, site: str) -> Linear | SideBySide:
    """One projection whose output is the parts' outputs side by side.

    NVFP4 parts are joined only where they share their global scale; anything else would round them anew, so they then
    stay separate projections. FP8 parts bring their rows' scales along.
    """
    if all(isinstance(part, Tensor) for part in parts):
        return Linear(torch.cat(tuple(parts)), operators, site)
    joined = quant.joined(parts)
    if joined is not None:
        return Linear(joined, operators, site)
    return SideBySide([Linear(part, operators, f"{site}[{i}]") for i, part in enumerate(parts)])


class GatedLinear:
    """`silu(gate(x)) * up(x)` of one weight, gate over up, through `gated`, or `prefill_gated` for many rows.

    A schedule that does not fuse the projection makes it as `both` does, at `both`'s own site.
    """

    def __init__(self, both: Linear, site: str) -> None:
        self.both, self.site = both, site

    def __call__(self, x: Tensor) -> Tensor:
        both, rows = self.both, x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        op = prefill_gated.OP if prefill_projection.takes(rows) else gated.OP
        y = both.operators.run(self.site, op, both.problem(rows), rows, both.weight, both.project)
        return y if x.ndim == 2 else y.view(*x.shape[:-1], y.shape[-1])


class GatedSideBySide:
    """The same of a gate and an up that cannot be joined; no schedule fuses these."""

    def __init__(self, parts: SideBySide) -> None:
        self.parts = parts

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = self.parts(x).chunk(2, -1)
        return F.silu(gate) * up


def scale_of(weight: Tensor, zero_centred: bool) -> Tensor:
    """What an RMSNorm multiplies by, FP32: the weight, or `1 + weight` where checkpoints store it zero-centred."""
    return weight.float() + 1 if zero_centred else weight.float()


class RmsNorm:
    """`x / rms(x) * scale` in FP32 with one rounding, through the `norm` operator.

    A residual stream is carried as `x` and the `delta` not yet added to it, so that sum and norm are one call.
    """

    def __init__(self, weight: Tensor, eps: float, zero_centred: bool, operators: Operators, site: str) -> None:
        self.scale, self.eps = scale_of(weight, zero_centred), eps
        self.operators, self.site = operators, site
        self._problems: dict[Hashable, norm.Problem] = {}

    def __call__(self, x: Tensor) -> Tensor:
        return self.after(x, None)[1]

    def after(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """`x + delta` and its norm, both in the shape and dtype of `x`."""
        rows, change = x.reshape(-1, x.shape[-1]), None if delta is None else delta.reshape(-1, x.shape[-1])
        key = (rows.shape[0], rows.stride(0), None if change is None else change.stride(0), rows.dtype)
        problem = self._problems.get(key)
        if problem is None:
            problem = self._problems[key] = norm.problem_of(rows, change)
        total, normed = self.operators.run(self.site, norm.OP, problem, rows, change, self.scale, self.eps)
        return total.view(x.shape), normed.view(x.shape)


class Heads:
    """Norms of query and key heads, rotary positions and the cache write, through the `rotary` operator."""

    def __init__(self, layer: rotary.Heads, operators: Operators, site: str) -> None:
        self.layer, self.operators, self.site = layer, operators, site
        self._problems: dict[Hashable, rotary.Problem] = {}

    def __call__(self, qkv: Tensor, table: rotary.Table, store: rotary.Store | None = None) -> tuple[Tensor, ...]:
        """q [.., T, Hq, D], and k and v [.., T, Hkv, D] where there is no store for them."""
        pages = (store.k_pages.dtype, store.k_pages.is_contiguous()) if store else None
        key = (qkv.shape, qkv.stride(-2), qkv.dtype, pages)
        problem = self._problems.get(key)
        if problem is None:
            problem = self._problems[key] = rotary.problem_of(qkv, self.layer, table, store)
        return self.operators.run(self.site, rotary.OP, problem, qkv, self.layer, table, store)


class Mlp:
    """Gated SiLU: `down(silu(gate(x)) * up(x))`, gate and up in one projection.

    `part` stands before `prefix` in the names of its sites: target and drafter both count their layers from 0.
    """

    def __init__(self, weights: Mapping[str, Weight], prefix: str, operators: Operators, part: str = "") -> None:
        parts = [weights[f"{prefix}.{name}_proj.weight"] for name in ("gate", "up")]
        site = part + prefix
        both = fused(parts, operators, f"{site}.gate_up")
        self.gated = GatedLinear(both, f"{site}.gated") if isinstance(both, Linear) else GatedSideBySide(both)
        self.down = Linear(weights[f"{prefix}.down_proj.weight"], operators, f"{site}.down")

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.gated(x))


class Rotary:
    """Rotate-half positions on the first `dim` of a head: their tables, made per call, in FP32."""

    def __init__(self, theta: float, dim: int, device: torch.device) -> None:
        exponents = torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim
        self.inverse = (theta**-exponents).repeat(2)

    def table(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [T, 1, dim] for integer `positions` [T]; the middle axis broadcasts over heads."""
        angles = positions[:, None, None] * self.inverse
        return angles.cos(), angles.sin()


class Tables:
    """Tables of several rotary positions at once, bit for bit those of each, in as many launches as of one."""

    def __init__(self, each: Sequence[Rotary]) -> None:
        self.each = tuple(each)
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, start: Tensor, rows: int) -> list[tuple[Tensor, Tensor]]:
        """`Rotary.table` of each, of `rows` positions from `start` [1] on."""
        if rows not in self._constants:
            count = torch.arange(rows, device=start.device)
            offsets = [count.repeat_interleave(len(one.inverse)) for one in self.each]
            self._constants[rows] = torch.cat(offsets), torch.cat([one.inverse.repeat(rows) for one in self.each])
        offsets, inverse = self._constants[rows]
        angles = (start + offsets) * inverse
        widths = [rows * len(one.inverse) for one in self.each]
        both = zip(angles.cos().split(widths), angles.sin().split(widths), strict=True)
        return [(cos.view(rows, 1, -1), sin.view(rows, 1, -1)) for cos, sin in both]


@cache
def counting(count: int, device: torch.device) -> Tensor:
    """0, 1, … int64 [count]; kept, so that a round does not make it anew."""
    return torch.arange(count, device=device)

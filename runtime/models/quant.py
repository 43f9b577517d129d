"""Quantised linears of a checkpoint: which they are, whether their parts fit together, and their exact values.

`nvfp4-pack-quantized`, per linear: `weight_packed` uint8 [N, K/2] (two E2M1 codes a byte, low nibble first),
`weight_scale` E4M3 [N, K/16], `weight_global_scale` FP32 [1], a divisor: w = E2M1(code) * E4M3(scale) / global. Layout
only; the number format is `kernels.projection.nvfp4`'s. FP8 formats are `runtime.models.fp8`'s.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from kernels.projection.fp8 import Fp8Weight
from kernels.projection.nvfp4 import GROUP, Nvfp4Weight, padded
from runtime.errors import ModelError
from runtime.models import fp8

FORMAT = "nvfp4-pack-quantized"
TILE = 32


class Stored(Protocol):
    """Where the parts of a linear lie, by their names; `runtime.models.weights.Checkpoint` is one."""

    def raw(self, name: str) -> Tensor: ...


def format_of(raw: Mapping[str, Any]) -> str | None:
    """The quantisation format that config.json declares, None where it declares none."""
    declared = declared_in(raw)
    if not declared:
        return None
    if declared.get("quant_method") == fp8.PLAIN:
        return fp8.plain(declared)
    formats = {declared.get("format")} | {g.get("format") for g in (declared.get("config_groups") or {}).values()}
    formats -= {None}
    if formats == {fp8.COMPRESSED}:
        return fp8.compressed(declared)
    if formats != {FORMAT}:
        named = sorted(map(str, formats)) or declared.get("quant_method")
        raise ModelError(f"quantisation format {named} is not supported; {FORMAT}, {fp8.COMPRESSED} and fp8 are")
    return FORMAT


def declared_in(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recipe in config.json, empty where there is none."""
    return raw.get("quantization_config") or raw.get("text_config", {}).get("quantization_config") or {}


HEAD = "lm_head.weight"


def quantisable(name: str) -> bool:
    """Whether a tensor is a linear of the layers: 496 of the target's and 47 of the drafter's at the public shapes."""
    return name == "fc.weight" or ("_proj" in name and name.endswith(".weight"))


def readable(name: str) -> bool:
    """Whether a checkpoint may hold a tensor quantised: a linear or the head. Embedding and codebooks stay 16-bit."""
    return name == HEAD or quantisable(name)


def check(checkpoint: Stored, name: str, shape: tuple[int, ...]) -> None:
    """Refuse a quantised linear whose parts are missing or do not fit `shape` [N, K]."""
    n, k = shape
    if k % GROUP:
        raise ModelError(f"{name} has {k} inputs; {FORMAT} needs a multiple of {GROUP}")
    for part, expected in (("weight_packed", [n, k // 2]), ("weight_scale", [n, k // GROUP])):
        found = list(checkpoint.raw(f"{name}.{part}").shape)
        if found != expected:
            raise ModelError(f"tensor {name}.{part} has shape {found}, its configuration says {expected}")
    divisor = checkpoint.raw(f"{name}.weight_global_scale")
    if divisor.numel() != 1 or not bool((divisor > 0).all()):
        raise ModelError(
            f"tensor {name}.weight_global_scale is {divisor.flatten().tolist()[:4]}; one positive divisor is needed"
        )


def read(checkpoint: Stored, name: str, device: torch.device) -> Nvfp4Weight:
    """One quantised linear as stored; `dequantised()` gives its FP32 values with one rounding."""
    packed, scales = (checkpoint.raw(f"{name}.{part}").to(device) for part in ("weight_packed", "weight_scale"))
    return Nvfp4Weight(packed, scales, float(checkpoint.raw(f"{name}.weight_global_scale")), packed.shape[0])


def cut(weight: Nvfp4Weight, part_of: Callable[[Tensor], Tensor]) -> Nvfp4Weight:
    """A part of an unpadded weight; `part_of` takes the same share of its codes [N, K/2] as of its scales [N, K/16]."""
    # As bytes: torch cannot join float8 tensors on every device.
    packed, scales = part_of(weight.packed), part_of(weight.scales.view(torch.uint8)).view(torch.float8_e4m3fn)
    return Nvfp4Weight(packed, scales, weight.global_scale, packed.shape[0])


def joined(parts: Sequence[Tensor | Nvfp4Weight | Fp8Weight]) -> Nvfp4Weight | Fp8Weight | None:
    """FP8 `parts` as one weight, or NVFP4 ones of one global scale, padded physically to the widest tile; None where
    they differ."""
    if all(isinstance(part, Fp8Weight) for part in parts):
        return fp8.joined(parts)
    if not all(isinstance(part, Nvfp4Weight) for part in parts) or len({part.global_scale for part in parts}) > 1:
        return None
    packed = torch.cat([part.packed[: part.n] for part in parts])
    # torch cannot join float8 tensors on every device; their bytes it can.
    scales = torch.cat([part.scales[: part.n].view(torch.uint8) for part in parts]).view(torch.float8_e4m3fn)
    return padded(Nvfp4Weight(packed, scales, parts[0].global_scale, packed.shape[0]), TILE)

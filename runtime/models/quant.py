"""`nvfp4-pack-quantized` tensors of a checkpoint: which they are, whether they fit together, and their exact values.

Per linear: `weight_packed` uint8 [N, K/2] (two E2M1 codes a byte, low nibble first), `weight_scale` E4M3 [N, K/16],
`weight_global_scale` FP32 [1], a divisor: w = E2M1(code) * E4M3(scale) / global. Layout only; the number format is
`kernels.projection.nvfp4`'s.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernels.projection.nvfp4 import GROUP, Nvfp4Weight
from runtime.errors import ModelError

if TYPE_CHECKING:
    from runtime.models.weights import Checkpoint

FORMAT = "nvfp4-pack-quantized"


def format_of(raw: Mapping[str, Any]) -> str | None:
    """The quantisation format that config.json declares, None where it declares none."""
    declared = raw.get("quantization_config") or raw.get("text_config", {}).get("quantization_config")
    if not declared:
        return None
    formats = {declared.get("format")} | {g.get("format") for g in (declared.get("config_groups") or {}).values()}
    formats -= {None}
    if formats != {FORMAT}:
        raise ModelError(f"quantisation format {sorted(map(str, formats))} is not supported; {FORMAT} is")
    return FORMAT


def check(checkpoint: "Checkpoint", name: str, shape: tuple[int, ...]) -> None:
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


def dequantise(checkpoint: "Checkpoint", name: str, device: torch.device) -> Tensor:
    """The FP32 weight [N, K] of one quantised linear: code times group scale exactly, then one division."""
    packed, scales = (checkpoint.raw(f"{name}.{part}").to(device) for part in ("weight_packed", "weight_scale"))
    divisor = float(checkpoint.raw(f"{name}.weight_global_scale"))
    return Nvfp4Weight(packed, scales, divisor, packed.shape[0]).dequantised()

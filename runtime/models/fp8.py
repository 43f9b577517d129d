"""FP8 linears of a checkpoint: which recipes are read, whether their scales fit, and their exact values.

`float-quantized` (compressed-tensors): `weight` E4M3 [N, K], `weight_scale` [N, 1] or one for all.
`fp8` (Transformers, vLLM): one scale for all, `weight_scale` or `weight_scale_inv`, or one for each block of rows
and inputs, `weight_scale_inv` [ceil(N / bn), ceil(K / bk)]; whatever its name says it multiplies. A scale per row or
for all is what a kept `Fp8Weight` holds; blocks are read as their values only. Activations stay as they are, whatever
a recipe says of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from kernels.projection.fp8 import Fp8Weight
from runtime.errors import ModelError

COMPRESSED, PLAIN = "float-quantized", "fp8"
BLOCK = (128, 128)  # where a recipe says nothing, as Transformers reads it
SCALES = {COMPRESSED: ("weight_scale",), PLAIN: ("weight_scale_inv", "weight_scale")}
E4M3 = torch.float8_e4m3fn


class Stored(Protocol):
    """Where the parts of a linear lie, by their names; `runtime.models.weights.Checkpoint` is one."""

    quantisation: str | None
    block: tuple[int, int]

    def raw(self, name: str) -> Tensor: ...
    def stored(self, name: str) -> bool: ...


def compressed(declared: Mapping[str, Any]) -> str:
    """The format of a compressed-tensors recipe of 8 bits; ModelError for scales that are not per row or for all."""
    for name, group in (declared.get("config_groups") or {}).items():
        weights = group.get("weights") or {}
        told = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
        if told not in ((8, "float", "channel"), (8, "float", "tensor")) or weights.get("symmetric") is False:
            symmetric = "" if weights.get("symmetric", True) else ", not symmetric"
            raise ModelError(
                f"{name} has weights of {told}{symmetric}; {COMPRESSED} is read with 8 bits, float, symmetric, and a "
                "scale per channel or tensor"
            )
    return COMPRESSED


def plain(declared: Mapping[str, Any]) -> str:
    """The format of a recipe `"quant_method": "fp8"`; ModelError for another number format."""
    if (fmt := declared.get("fmt", "e4m3")) not in ("e4m3", "float8_e4m3fn"):
        raise ModelError(f"quantisation fp8 has fmt {fmt!r}; only e4m3 is read")
    return PLAIN


def block_of(declared: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and inputs of a block that shares a scale."""
    size = declared.get("weight_block_size")
    if size is None:
        return BLOCK
    fits = isinstance(size, (list, tuple)) and len(size) == 2 and all(type(n) is int and n > 0 for n in size)
    if not fits:
        raise ModelError(f"weight_block_size is {size!r}; two positive numbers, rows and inputs of a block, are needed")
    return size[0], size[1]


def scale_name(checkpoint: Stored, name: str) -> str | None:
    """What the scale of linear `name` is stored as; None where there is none that its recipe knows."""
    parts = SCALES.get(checkpoint.quantisation or "", ())
    return next((f"{name}.{part}" for part in parts if checkpoint.stored(f"{name}.{part}")), None)


def read(checkpoint: Stored, name: str, device: torch.device) -> Fp8Weight:
    """A linear with a scale per row or for all; ModelError where its codes or scales cannot be ones."""
    codes, told, scale = _stored(checkpoint, name)
    if list(scale.shape) not in ([codes.shape[0], 1], [codes.shape[0]], [1], [1, 1], []):
        raise ModelError(
            f"tensor {told} has shape {list(scale.shape)}; one scale per row of {list(codes.shape)}, or one for all, "
            "is needed"
        )
    return Fp8Weight(codes.to(device), scale.flatten().expand(codes.shape[0]).contiguous().to(device))


def values(checkpoint: Stored, name: str) -> Tensor:
    """FP32 values [N, K] of a linear, each with one rounding."""
    codes, told, scale = _stored(checkpoint, name)
    if checkpoint.quantisation != PLAIN or scale.numel() == 1:
        return read(checkpoint, name, codes.device).dequantised()
    rows, inputs = checkpoint.block
    wanted = [-(-codes.shape[0] // rows), -(-codes.shape[1] // inputs)]
    if list(scale.shape) != wanted:
        raise ModelError(
            f"tensor {told} has shape {list(scale.shape)}; {list(codes.shape)} in blocks of {rows} x {inputs} needs "
            f"{wanted}"
        )
    every = scale.repeat_interleave(rows, 0)[: codes.shape[0]].repeat_interleave(inputs, 1)[:, : codes.shape[1]]
    return codes.float() * every


def _stored(checkpoint: Stored, name: str) -> tuple[Tensor, str, Tensor]:
    """Codes, the name of their scale, and the scale in FP32, each a number."""
    told = scale_name(checkpoint, name)
    assert told is not None, "checked when the checkpoint was opened"
    codes, scale = checkpoint.raw(f"{name}.weight"), checkpoint.raw(told)
    if not scale.is_floating_point():
        raise ModelError(f"tensor {told} is {scale.dtype}; exponents stored as integers are not read")
    scale = scale.float()  # of E8M0 too
    if not bool(((scale > 0) & scale.isfinite()).all()):
        raise ModelError(f"tensor {told} holds a scale that is not positive and finite")
    if bool((codes.view(torch.uint8) & 0x7F == 0x7F).any()):
        raise ModelError(f"tensor {name}.weight holds an E4M3 code that is no number")
    return codes, told, scale


def cut(weight: Fp8Weight, part_of: Callable[[Tensor], Tensor], by_inputs: bool) -> Fp8Weight:
    """A part of a weight; one cut by inputs keeps every row's scale."""
    # As bytes: torch cannot join float8 tensors on every device.
    codes = part_of(weight.codes.view(torch.uint8)).view(E4M3)
    return Fp8Weight(codes, weight.scales if by_inputs else part_of(weight.scales))


def joined(parts: Sequence[Fp8Weight]) -> Fp8Weight:
    """`parts` as one weight, each row with its scale."""
    codes = torch.cat([part.codes.view(torch.uint8) for part in parts]).view(E4M3)
    return Fp8Weight(codes, torch.cat([part.scales for part in parts]))

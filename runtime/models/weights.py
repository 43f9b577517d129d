"""Checkpoint tensors: reading what a configuration needs (`runtime.models.shapes`) from safetensors folders.

Names are used without the prefix in which checkpoints differ (`model.`, `model.language_model.`). Vision and MTP
tensors are not read. Missing, misshapen or unreadable tensors are refused in one sentence. Knows no layer's meaning.
"""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from kernels.projection.fp8 import Fp8Weight
from kernels.projection.nvfp4 import Nvfp4Weight
from runtime.config import DraftConfig, TargetConfig, read_json
from runtime.errors import ModelError
from runtime.models import fp8, quant
from runtime.models.layers import Weight
from runtime.models.shapes import FP32_NAMES, Shapes, draft_shapes, target_shapes

PREFIXES = ("model.language_model.", "language_model.model.", "model.", "")


def read_target(
    model_dir: Path, config: TargetConfig, device: torch.device, dtype: torch.dtype, keep_quantised: bool = False
) -> "Checkpoint":
    """The target's tensors, read from disk one by one as they are asked for."""
    raw = read_json(model_dir / "config.json")
    checkpoint = Checkpoint(model_dir, target_shapes(config), device, dtype, raw, keep_quantised)
    _refuse_mtp_without_tensors(raw, checkpoint)
    return checkpoint


def read_draft(
    draft_dir: Path, config: DraftConfig, device: torch.device, dtype: torch.dtype, keep_quantised: bool = False
) -> "Checkpoint":
    """The drafter's tensors, likewise."""
    raw = read_json(draft_dir / "config.json")
    return Checkpoint(draft_dir, draft_shapes(config), device, dtype, raw, keep_quantised)


class Checkpoint(Mapping[str, Weight]):
    """Tensors of a safetensors folder by short name, checked against `shapes`; each access reads from disk.

    Floating tensors come in `dtype` on `device` (decay parameters in FP32), NVFP4 and FP8 linears as their values or,
    with `keep_quantised`, as they are; the head may be one of them. `raw` is config.json.
    """

    def __init__(
        self,
        folder: Path,
        shapes: Shapes,
        device: torch.device,
        dtype: torch.dtype,
        raw: Mapping[str, Any] | None = None,
        keep_quantised: bool = False,
    ) -> None:
        self.folder, self.shapes, self.device, self.dtype = folder, shapes, device, dtype
        self.files = index_of(folder)
        self.quantisation, self.keep_quantised = quant.format_of(raw or {}), keep_quantised
        self.block = fp8.block_of(quant.declared_in(raw or {}))
        self._check()

    def __getitem__(self, name: str) -> Weight:
        dtype = torch.float32 if name.endswith(FP32_NAMES) else self.dtype
        if self.stored(name):
            if name in self.kept:
                return fp8.read(self, name.removesuffix(".weight"), self.device)
            stored = self.raw(name)
            if stored.dtype == fp8.E4M3:
                stored = fp8.values(self, name.removesuffix(".weight"))
            return stored.to(device=self.device, dtype=dtype)
        weight = quant.read(self, name.removesuffix(".weight"), self.device)
        return weight if self.keep_quantised else weight.dequantised().to(dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    @cached_property
    def kept(self) -> Mapping[str, str]:
        """What comes as codes, and of which format."""
        return {name: form for name in self.shapes if self.keep_quantised and (form := self._form(name))}

    def _form(self, name: str) -> str | None:
        if not self.stored(name):
            return Nvfp4Weight.format
        if not quant.readable(name) or self._dtype(name) != "F8_E4M3":
            return None
        scale = fp8.scale_name(self, name.removesuffix(".weight"))
        if self.quantisation == fp8.PLAIN and scale is not None and math.prod(self._shape(scale)) > 1:
            raise ModelError(
                f"tensor {scale} has a scale for each block of {self.block[0]} x {self.block[1]}, which no schedule "
                "reads: serve it without --keep-quantised"
            )
        return Fp8Weight.format

    def stored(self, name: str) -> bool:
        return self._full_name(name) is not None

    def raw(self, name: str) -> Tensor:
        """The stored tensor, in its stored dtype, on the CPU."""
        full = self._full_name(name)
        if full is None:
            raise ModelError(f"{self.folder} has no tensor {name!r}, which its configuration asks for")
        with safe_open(self.files[full], framework="pt") as file:
            return file.get_tensor(full)

    def _full_name(self, name: str) -> str | None:
        return next((prefix + name for prefix in PREFIXES if prefix + name in self.files), None)

    def _shape(self, name: str) -> tuple[int, ...]:
        full = self._full_name(name)
        with safe_open(self.files[full], framework="pt") as file:
            return tuple(file.get_slice(full).get_shape())

    def _dtype(self, name: str) -> str:
        full = self._full_name(name)
        with safe_open(self.files[full], framework="pt") as file:
            return str(file.get_slice(full).get_dtype())

    def _check(self) -> None:
        for name, shape in self.shapes.items():
            if self.stored(name):
                if self._shape(name) != shape:
                    raise ModelError(
                        f"tensor {name} has shape {list(self._shape(name))}, its configuration says {list(shape)}"
                    )
                if self._dtype(name) == "F8_E4M3" and fp8.scale_name(self, name.removesuffix(".weight")) is None:
                    raise ModelError(f"tensor {name} is E4M3 without a weight_scale and an FP8 configuration")
            elif self.quantisation == quant.FORMAT and quant.readable(name):
                quant.check(self, name.removesuffix(".weight"), shape)
            else:
                raise ModelError(f"{self.folder} has no tensor {name!r}, which its configuration asks for")


def index_of(folder: Path) -> dict[str, Path]:
    """Tensor name to file, from `model.safetensors.index.json`, or from every safetensors file of the folder."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = {name: folder / str(file) for name, file in _weight_map(index).items()}
        for path in sorted(set(files.values())):
            if not path.is_file():
                raise ModelError(f"{path} is missing, though {index.name} lists it")
        return files
    files = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                files |= dict.fromkeys(file.keys(), path)
        except SafetensorError as error:
            raise ModelError(f"{path} is not a readable safetensors file: {error}") from None
    if not files:
        raise ModelError(f"{folder} has no *.safetensors file")
    return files


def _weight_map(index: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{index} is not a safetensors index (it needs a weight_map)") from None


def _refuse_mtp_without_tensors(raw: Mapping[str, Any], checkpoint: Checkpoint) -> None:
    """A configuration may declare a multi-token-prediction head; only one that has its tensors may be called so."""
    declared = int(raw.get("text_config", raw).get("mtp_num_hidden_layers") or 0)
    if declared and not any("mtp." in name for name in checkpoint.files):
        raise ModelError(
            f"config.json declares {declared} MTP layer(s) but the checkpoint has no mtp.* tensor; "
            "set mtp_num_hidden_layers to 0 to serve it with the DFlash2 drafter alone"
        )

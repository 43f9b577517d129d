"""Checkpoint tensors: which names and shapes a configuration needs, and reading them from safetensors folders.

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
from runtime.config import FULL, DraftConfig, TargetConfig, read_json
from runtime.errors import ModelError
from runtime.models import fp8, quant
from runtime.models.layers import Weight

PREFIXES = ("model.language_model.", "language_model.model.", "model.", "")
FP32_NAMES = ("A_log", "dt_bias")
Shapes = dict[str, tuple[int, ...]]


def target_shapes(config: TargetConfig) -> Shapes:
    """Every text tensor of a BF16 checkpoint; 851 at the public shape."""
    hidden = config.hidden_size
    shapes: Shapes = {"embed_tokens.weight": (config.vocab_size, hidden), "norm.weight": (hidden,)}
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for i, kind in enumerate(config.layer_types):
        mixer = _attention_shapes(config, 2) if kind == FULL else _gdn_shapes(config)
        name = "self_attn" if kind == FULL else "linear_attn"
        shapes |= {f"layers.{i}.{name}.{key}": shape for key, shape in mixer.items()}
        shapes |= {f"layers.{i}.{key}": shape for key, shape in _block_shapes(hidden, config.intermediate_size).items()}
    return shapes


def draft_shapes(config: DraftConfig) -> Shapes:
    """Every tensor of a drafter checkpoint; 1,924,404,480 parameters at the public shape."""
    hidden, rank = config.hidden_size, config.selector_rank
    groups = hidden // config.conv_group_size
    conv = {
        "base_kernel": (2, config.conv_kernel_size, hidden),
        "kernel_projection.weight": (2 * config.conv_kernel_size * groups, hidden),
    }
    shapes: Shapes = {
        "fc.weight": (hidden, len(config.target_layer_ids) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "candidate_selector.hidden_projection.weight": (rank, hidden),
        "candidate_selector.predecessor_codebook": (config.vocab_size, rank),
        "candidate_selector.successor_codebook": (config.vocab_size, rank),
    }
    for i in range(config.num_hidden_layers):
        layer = _block_shapes(hidden, config.intermediate_size)
        layer |= {f"self_attn.{key}": shape for key, shape in _attention_shapes(config, 1).items()}
        layer |= {f"{side}_conv.{key}": shape for side in ("attention", "mlp") for key, shape in conv.items()}
        shapes |= {f"layers.{i}.{key}": shape for key, shape in layer.items()}
    return shapes


def parameter_count(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


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


def random_weights(
    shapes: Shapes, seed: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> "RandomWeights":
    """Weights of a sensible scale made on demand on `device`; the same values for a (name, seed) at every access."""
    return RandomWeights(shapes, seed, torch.device(device), dtype)


class RandomWeights(Mapping[str, Tensor]):
    def __init__(self, shapes: Shapes, seed: int, device: torch.device, dtype: torch.dtype) -> None:
        self.shapes, self.seed, self.device, self.dtype = shapes, seed, device, dtype
        self.order = {name: i for i, name in enumerate(shapes)}

    def __getitem__(self, name: str) -> Tensor:
        shape = self.shapes[name]
        generator = torch.Generator(self.device).manual_seed(self.seed * 1_000_003 + self.order[name])
        value = _initial(name, shape, generator, self.device)
        return value if name.endswith(FP32_NAMES) else value.to(self.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def _initial(name: str, shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """A random starting value: slow decays, base kernels near the identity tap, matrices by fan-in."""
    noise = torch.empty(shape, device=device)
    if name.endswith("A_log"):
        return noise.uniform_(0.01, 1, generator=generator).log()
    noise.normal_(generator=generator)
    if name.endswith("base_kernel"):
        noise.mul_(0.1)[:, 0].add_(1)
        return noise
    if name.endswith(("dt_bias", "linear_attn.norm.weight")):
        return noise.mul_(0.1).add_(1)
    if name.endswith("norm.weight") or len(shape) == 1:
        return noise.mul_(0.1)
    return noise.mul_(1.0 if "codebook" in name else shape[-1] ** -0.5)


def _block_shapes(hidden: int, intermediate: int) -> Shapes:
    return {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (intermediate, hidden),
        "mlp.up_proj.weight": (intermediate, hidden),
        "mlp.down_proj.weight": (hidden, intermediate),
    }


def _attention_shapes(config: TargetConfig | DraftConfig, query_parts: int) -> Shapes:
    """`query_parts` is 2 where q_proj emits the output gate beside the query."""
    hidden, dim = config.hidden_size, config.head_dim
    return {
        "q_proj.weight": (query_parts * config.num_attention_heads * dim, hidden),
        "k_proj.weight": (config.num_key_value_heads * dim, hidden),
        "v_proj.weight": (config.num_key_value_heads * dim, hidden),
        "o_proj.weight": (hidden, config.num_attention_heads * dim),
        "q_norm.weight": (dim,),
        "k_norm.weight": (dim,),
    }


def _gdn_shapes(config: TargetConfig) -> Shapes:
    hidden, heads = config.hidden_size, config.linear_num_value_heads
    return {
        "in_proj_qkv.weight": (config.conv_dim, hidden),
        "in_proj_z.weight": (config.value_dim, hidden),
        "in_proj_b.weight": (heads, hidden),
        "in_proj_a.weight": (heads, hidden),
        "out_proj.weight": (hidden, config.value_dim),
        "conv1d.weight": (config.conv_dim, 1, config.linear_conv_kernel_dim),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (config.linear_value_head_dim,),
    }


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

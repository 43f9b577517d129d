"""What a checkpoint's `config.json` says, as frozen facts: the target's shape and the drafter's.

Reads the text part of `qwen3_5` and the `DFlash2DraftModel` layout. Knows no weights, no devices and no requests.
Whatever this runtime cannot represent is refused here, before any tensor is touched.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.errors import ModelError

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
TARGET_TYPES = ("qwen3_5", "qwen3_5_text")


@dataclass(frozen=True)
class TargetConfig:
    """Shape of a `qwen3_5_text` decoder. Field names are those of the Hugging Face configuration."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    layer_types: tuple[str, ...]
    linear_conv_kernel_dim: int = 4
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e7
    rotary_dim: int = 64
    max_position_embeddings: int = 262144
    tie_word_embeddings: bool = False
    eos_token_ids: tuple[int, ...] = ()

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layer_types)

    @property
    def key_dim(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_dim(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: q, k and v side by side."""
        return 2 * self.key_dim + self.value_dim

    @property
    def full_layers(self) -> tuple[int, ...]:
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == FULL)

    @property
    def linear_layers(self) -> tuple[int, ...]:
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == LINEAR)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> "TargetConfig":
        """From a parsed `config.json`, either the whole model's or its text part."""
        _refuse_other_targets(raw)
        text = raw.get("text_config", raw)
        _refuse_unrepresentable(text)
        rope = _rope(text)
        head_dim = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
        factor = rope.get("partial_rotary_factor", text.get("partial_rotary_factor", 0.25))
        try:
            config = cls(
                **{name: int(text[name]) for name in _PLAIN_TARGET_FIELDS},
                head_dim=int(head_dim),
                layer_types=_layer_types(text),
                linear_conv_kernel_dim=int(text.get("linear_conv_kernel_dim", 4)),
                rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
                rope_theta=float(rope["rope_theta"]),
                rotary_dim=int(head_dim * factor),
                max_position_embeddings=int(text.get("max_position_embeddings", 32768)),
                tie_word_embeddings=bool(raw.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
                eos_token_ids=_ids(raw.get("eos_token_id", text.get("eos_token_id"))),
            )
        except KeyError as missing:
            raise ModelError(f"config.json lacks the field {missing}; a qwen3_5 text configuration has it") from None
        _check_target(config)
        return config


@dataclass(frozen=True)
class DraftConfig:
    """Shape of a DFlash 2 drafter; `block_size` rows hold the bonus token and `block_size - 1` masks.

    `causal_layers` says of each layer whether its rows see only rows before them.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    layer_types: tuple[str, ...]
    sliding_window: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    block_size: int = 8
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    selector_rank: int = 256
    selector_top_k: int = 16
    causal_layers: tuple[bool, ...] = ()
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e7
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layer_types)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> "DraftConfig":
        """From the parsed `config.json` of a drafter folder."""
        architectures = raw.get("architectures") or []
        if "DFlash2DraftModel" not in architectures:
            raise ModelError(
                f"the drafter's architectures are {architectures}; this runtime drafts with DFlash2DraftModel"
            )
        own = raw.get("dflash_config") or {}

        def field(name: str, default: Any = None) -> Any:
            return own.get(name, raw.get(name, default))

        layer_types = _draft_layer_types(raw)
        causal = raw.get("is_causal")
        try:
            config = cls(
                **{name: int(raw[name]) for name in _PLAIN_DRAFT_FIELDS},
                head_dim=int(raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]),
                layer_types=layer_types,
                sliding_window=int(raw.get("sliding_window") or 0),
                target_layer_ids=_ids(field("target_layer_ids")),
                mask_token_id=int(field("mask_token_id")),
                **{name: int(field(name)) for name in _DFLASH_INTS if field(name) is not None},
                causal_layers=tuple(kind == SLIDING if causal is None else bool(causal) for kind in layer_types),
                rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
                rope_theta=float(_rope(raw)["rope_theta"]),
                input_embedding_scale=float(field("input_embedding_scale", 1.0)),
                output_multiplier=float(field("output_multiplier", 1.0)),
                final_logit_softcapping=field("final_logit_softcapping"),
            )
        except (KeyError, TypeError) as missing:
            raise ModelError(f"the drafter's config.json lacks a field that DFlash 2 needs: {missing}") from None
        _check_draft(config)
        return config


_PLAIN_TARGET_FIELDS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
)
_PLAIN_DRAFT_FIELDS = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
_DFLASH_INTS = ("block_size", "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


def read_json(path: Path, wanted: str = "--model wants a folder in Hugging Face layout") -> dict[str, Any]:
    """A JSON object from `path`, or a ModelError that names the file and what is `wanted` instead."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing; {wanted}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); {wanted}") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a JSON {type(value).__name__}, not an object")
    return value


def eos_token_ids(model_dir: Path, config: TargetConfig) -> tuple[int, ...]:
    """End-of-sequence ids of this snapshot: its generation configuration first, its model configuration otherwise."""
    path = model_dir / "generation_config.json"
    if path.is_file():
        ids = _ids(read_json(path).get("eos_token_id"))
        if ids:
            return ids
    return config.eos_token_ids


def _refuse_other_targets(raw: Mapping[str, Any]) -> None:
    kind = raw.get("model_type")
    if kind not in TARGET_TYPES:
        raise ModelError(f"model_type is {kind!r}; this runtime serves {' and '.join(TARGET_TYPES)}")


def _refuse_unrepresentable(text: Mapping[str, Any]) -> None:
    if "moe" in str(text.get("model_type", "")) or text.get("num_experts"):
        raise ModelError("the checkpoint has experts (mixture of experts); this runtime serves dense decoders only")
    if text.get("attention_bias"):
        raise ModelError("attention_bias is true; this runtime has no biased projections")
    if text.get("hidden_act", "silu") != "silu":
        raise ModelError(f"hidden_act is {text['hidden_act']!r}; this runtime computes gated SiLU only")
    if text.get("attn_output_gate", True) is False:
        raise ModelError("attn_output_gate is false; this runtime's attention always has its output gate")
    if text.get("mamba_ssm_dtype", "float32") != "float32":
        raise ModelError(f"mamba_ssm_dtype is {text['mamba_ssm_dtype']!r}; the recurrent state is kept in float32 only")


def _rope(text: Mapping[str, Any]) -> dict[str, Any]:
    rope = dict(text.get("rope_parameters") or text.get("rope_scaling") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "mrope"):
        raise ModelError(f"rope type {kind!r} is not supported; this runtime rotates by the default rule")
    rope.setdefault("rope_theta", text.get("rope_theta", 10000.0))
    return rope


def _layer_types(text: Mapping[str, Any]) -> tuple[str, ...]:
    given = text.get("layer_types")
    if given is None:
        interval = int(text.get("full_attention_interval", 4))
        given = [LINEAR if (i + 1) % interval else FULL for i in range(int(text["num_hidden_layers"]))]
    if set(given) - {LINEAR, FULL}:
        raise ModelError(
            f"layer types {sorted(set(given) - {LINEAR, FULL})} are unknown; {LINEAR} and {FULL} are served"
        )
    if len(given) != int(text.get("num_hidden_layers", len(given))):
        raise ModelError(f"layer_types lists {len(given)} layers, num_hidden_layers says {text['num_hidden_layers']}")
    return tuple(given)


def _draft_layer_types(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """As transformers reads a Qwen3 configuration: without `use_sliding_window` true no layer has a window."""
    count, windowed = int(raw["num_hidden_layers"]), raw.get("use_sliding_window", False) is True
    given = raw.get("layer_types")
    if given is None:
        first = int(raw.get("max_window_layers", 28))
        given = [SLIDING if windowed and i >= first else FULL for i in range(count)]
    if set(given) - {FULL, SLIDING}:
        raise ModelError(f"drafter layer types {sorted(set(given))} include one that is neither full nor sliding")
    if len(given) != count:
        raise ModelError(f"the drafter's layer_types lists {len(given)} layers, num_hidden_layers says {count}")
    if SLIDING in given and not windowed:
        raise ModelError(
            "the drafter lists sliding_attention layers without use_sliding_window true, which gives them no window;"
            " state it, or list full_attention"
        )
    return tuple(given)


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(i) for i in value) if isinstance(value, (list, tuple)) else (int(value),)


def _check_target(config: TargetConfig) -> None:
    _divides(config.num_key_value_heads, config.num_attention_heads, "num_key_value_heads", "num_attention_heads")
    _divides(
        config.linear_num_key_heads, config.linear_num_value_heads, "linear_num_key_heads", "linear_num_value_heads"
    )
    if config.rotary_dim % 2 or not 0 < config.rotary_dim <= config.head_dim:
        raise ModelError(
            f"{config.rotary_dim} of {config.head_dim} head dimensions rotate; an even number up to head_dim is needed"
        )


def _check_draft(config: DraftConfig) -> None:
    _divides(config.num_key_value_heads, config.num_attention_heads, "num_key_value_heads", "num_attention_heads")
    _divides(config.conv_group_size, config.hidden_size, "conv_group_size", "hidden_size")
    if SLIDING in config.layer_types and config.sliding_window < config.block_size:
        raise ModelError(
            f"sliding_window {config.sliding_window} is smaller than the block of {config.block_size} rows"
        )
    if not 2 <= config.block_size <= 8:
        raise ModelError(f"block_size is {config.block_size}; verification has between two and eight rows")
    if not 1 <= config.conv_kernel_size <= 8:
        raise ModelError(f"conv_kernel_size is {config.conv_kernel_size}; a block of eight rows has one to eight taps")


def _divides(part: int, whole: int, part_name: str, whole_name: str) -> None:
    if part < 1 or whole % part:
        raise ModelError(f"{whole_name} {whole} is not a multiple of {part_name} {part}")

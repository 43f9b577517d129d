"""Shapes and training lengths: the shipped checkpoint, and a small one for trials on a CPU. Knows no tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

BLOCK_SIZE = 8


@dataclass(frozen=True)
class Shape:
    """Sizes of one target and its drafter, in the fields' Hugging Face meaning."""

    vocab_size: int
    hidden: int
    intermediate: int
    num_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    linear_key_heads: int
    linear_value_heads: int
    linear_head_dim: int
    capacity: int
    draft_layers: int
    draft_intermediate: int
    draft_window: int
    aux_layers: tuple[int, ...]
    conv_group: int
    selector_rank: int


@dataclass(frozen=True)
class Schedule:
    """One training run: `lanes` of the preset's `max_length` tokens a step; rates are Adam's peak rates."""

    steps: int
    lanes: int
    rate: float
    warm_up: int


@dataclass(frozen=True)
class Preset:
    """`kinds` are taught and measured, `drills` only taught; `anchors` are drafted blocks a lane.

    `edition` is the text's: the shipped checkpoint was made from the second.
    """

    shape: Shape
    kinds: tuple[str, ...]
    drills: tuple[str, ...]
    max_length: int
    target: Schedule
    draft: Schedule
    anchors: int
    edition: int = 1


TRIAL = Preset(
    shape=Shape(
        vocab_size=640, hidden=64, intermediate=160, num_layers=4, heads=4, kv_heads=4, head_dim=16,
        linear_key_heads=4, linear_value_heads=4, linear_head_dim=16, capacity=2048,
        draft_layers=1, draft_intermediate=128, draft_window=256, aux_layers=(0, 2), conv_group=16, selector_rank=16,
    ),
    kinds=("gsm8k",),
    drills=(),
    max_length=256,
    target=Schedule(steps=400, lanes=12, rate=6e-3, warm_up=20),
    draft=Schedule(steps=200, lanes=8, rate=4e-3, warm_up=10),
    anchors=24,
)  # fmt: skip

NANO = Preset(
    shape=Shape(
        vocab_size=2560, hidden=192, intermediate=512, num_layers=8, heads=8, kv_heads=4, head_dim=32,
        linear_key_heads=4, linear_value_heads=8, linear_head_dim=32, capacity=8192,
        draft_layers=2, draft_intermediate=384, draft_window=512, aux_layers=(1, 3, 6), conv_group=16, selector_rank=32,
    ),
    kinds=("gsm8k", "math500", "humaneval", "mbpp", "livecodebench", "structured"),
    drills=("copying", "sums"),
    max_length=512,
    target=Schedule(steps=6600, lanes=64, rate=3e-3, warm_up=100),
    draft=Schedule(steps=2000, lanes=64, rate=3e-3, warm_up=100),
    anchors=48,
)  # fmt: skip

PRESETS = {"trial": TRIAL, "nano": NANO, "nano-2": replace(NANO, edition=2)}


def target_config(shape: Shape, eos_ids: list[int], pad_id: int) -> dict[str, Any]:
    """`config.json` of the target, a `qwen3_5_text` decoder with full attention every fourth layer."""
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.num_layers,
        "layer_types": ["linear_attention" if (i + 1) % 4 else "full_attention" for i in range(shape.num_layers)],
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "attn_output_gate": True,
        "linear_num_key_heads": shape.linear_key_heads,
        "linear_num_value_heads": shape.linear_value_heads,
        "linear_key_head_dim": shape.linear_head_dim,
        "linear_value_head_dim": shape.linear_head_dim,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        "max_position_embeddings": shape.capacity,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": eos_ids,
        "pad_token_id": pad_id,
        "dtype": "bfloat16",
    }


def draft_config(shape: Shape, mask_id: int) -> dict[str, Any]:
    """`drafter/config.json` in the public DFlash 2 layout."""
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.draft_intermediate,
        "num_hidden_layers": shape.draft_layers,
        "layer_types": ["sliding_attention"] * shape.draft_layers,
        "use_sliding_window": True,
        "sliding_window": shape.draft_window,
        "is_causal": False,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "max_position_embeddings": shape.capacity,
        "num_target_layers": shape.num_layers,
        "tie_word_embeddings": False,
        "dflash_config": {
            "block_size": BLOCK_SIZE,
            "mask_token_id": mask_id,
            "target_layer_ids": list(shape.aux_layers),
            "conv_kernel_size": 2,
            "conv_group_size": shape.conv_group,
            "selector_rank": shape.selector_rank,
            "selector_top_k": 16,
        },
        "dtype": "bfloat16",
    }

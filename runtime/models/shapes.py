"""Which tensors a configuration needs, by their names without a prefix, and of which shapes.

Knows no file, no value and no layer's meaning.
"""

import math

from runtime.config import FULL, DraftConfig, TargetConfig

Shapes = dict[str, tuple[int, ...]]
FP32_NAMES = ("A_log", "dt_bias")


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

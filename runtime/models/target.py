"""The `qwen3_5` text decoder: GatedDeltaNet layers, gated full attention, zero-centred norms.

The decoder is written once. How a token reaches the tokens before it (a whole sequence, a paged cache, eight
verification rows) is a *step* from `runtime.models.steps`. Knows no sampling and no drafter, except that it hands out
the hidden states behind `aux_layers` on request.

Training: build `Target(config, tensors, operators)` from leaf tensors that require gradients (assembly only
concatenates, so gradients reach the leaves; rebuild it after every optimiser step) and call `sequence(ids)`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import attention, gdn
from runtime.config import FULL, TargetConfig
from runtime.models.layers import Linear, Mlp, RmsNorm, Rotary, Weight, fused
from runtime.models.steps import PrefillStep, SequenceStep, Step, VerifyStep
from runtime.operators import Operators


@dataclass(frozen=True)
class Output:
    """Final normed hidden states [.., T, H] and the aux layers' raw outputs side by side [.., T, n * H] (or None)."""

    hidden: Tensor
    aux: Tensor | None


class Attention:
    """Full attention with per-head query/key norms, partial rotary positions and a sigmoid output gate."""

    def __init__(self, config: TargetConfig, weights: Mapping[str, Weight], layer: int, operators: Operators) -> None:
        prefix = f"layers.{layer}.self_attn"
        self.layer, self.head_dim, self.heads = layer, config.head_dim, config.num_attention_heads
        parts = [weights[f"{prefix}.{name}_proj.weight"] for name in "qkv"]
        self.qkv = fused(parts, operators, f"{prefix}.qkv")
        self.out = Linear(weights[f"{prefix}.o_proj.weight"], operators, f"{prefix}.o")
        self.q_norm = RmsNorm(weights[f"{prefix}.q_norm.weight"], config.rms_norm_eps, zero_centred=True)
        self.k_norm = RmsNorm(weights[f"{prefix}.k_norm.weight"], config.rms_norm_eps, zero_centred=True)
        kv_width = config.num_key_value_heads * self.head_dim
        self.widths = (2 * self.heads * self.head_dim, kv_width, kv_width)
        self.operators, self.site, self.scale = operators, f"{prefix}.attention", self.head_dim**-0.5
        self.problems: dict[Hashable, attention.Problem] = {}

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in self.qkv(x).split(self.widths, -1))
        q, gate = q.unflatten(-2, (self.heads, 2)).unbind(-2)
        q, k = step.rotate(self.q_norm(q)), step.rotate(self.k_norm(k))
        out = step.attention(self, q, k, v)
        return self.out((out * gate.sigmoid()).flatten(-2))


class GatedDeltaNet:
    """Linear attention: causal convolution, gated delta rule, gated norm."""

    def __init__(self, config: TargetConfig, weights: Mapping[str, Weight], layer: int, operators: Operators) -> None:
        prefix = f"layers.{layer}.linear_attn"
        self.layer, self.eps = layer, config.rms_norm_eps
        self.key_heads, self.value_heads = config.linear_num_key_heads, config.linear_num_value_heads
        self.key_dim, self.value_dim = config.linear_key_head_dim, config.linear_value_head_dim
        parts = [weights[f"{prefix}.in_proj_{name}.weight"] for name in ("qkv", "z", "b", "a")]
        self.project = fused(parts, operators, f"{prefix}.qkvzba")
        self.widths = (config.conv_dim, config.value_dim, self.value_heads, self.value_heads)
        conv_weight = weights[f"{prefix}.conv1d.weight"].squeeze(1).float()
        self.operands = gdn.Layer(conv_weight, weights[f"{prefix}.A_log"], weights[f"{prefix}.dt_bias"])
        self.norm = RmsNorm(weights[f"{prefix}.norm.weight"], config.rms_norm_eps, zero_centred=False)
        self.out = Linear(weights[f"{prefix}.out_proj.weight"], operators, f"{prefix}.out")
        self.operators, self.site = operators, f"{prefix}.recurrence"
        self.problems: dict[Hashable, gdn.Problem] = {}

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        qkv, z, b, a = self.project(x).split(self.widths, -1)
        out = step.recurrence(self, qkv, a, b)
        gate = F.silu(z.unflatten(-1, (self.value_heads, self.value_dim)).float())
        return self.out((self.norm(out) * gate).to(x.dtype).flatten(-2))

    def split_heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convolved channels [.., C] -> q, k [.., Hk, Dk] and v [.., Hv, Dv]."""
        keys = self.key_heads * self.key_dim
        q, k, v = qkv.split((keys, keys, self.value_heads * self.value_dim), -1)
        return tuple(
            x.unflatten(-1, (heads, -1))
            for x, heads in ((q, self.key_heads), (k, self.key_heads), (v, self.value_heads))
        )


class DecoderLayer:
    def __init__(self, config: TargetConfig, weights: Mapping[str, Weight], layer: int, operators: Operators) -> None:
        prefix, eps = f"layers.{layer}", config.rms_norm_eps
        kind = Attention if config.layer_types[layer] == FULL else GatedDeltaNet
        self.mixer = kind(config, weights, layer, operators)
        self.mlp = Mlp(weights, f"{prefix}.mlp", operators)
        self.input_norm = RmsNorm(weights[f"{prefix}.input_layernorm.weight"], eps, zero_centred=True)
        self.post_norm = RmsNorm(weights[f"{prefix}.post_attention_layernorm.weight"], eps, zero_centred=True)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        x = x + self.mixer(self.input_norm(x), step)
        return x + self.mlp(self.post_norm(x))


class Target:
    """The decoder with its embedding and head; `weights` are read once each, by names without their model prefix."""

    def __init__(
        self,
        config: TargetConfig,
        weights: Mapping[str, Weight],
        operators: Operators,
        aux_layers: Sequence[int] = (),
    ) -> None:
        self.config, self.operators, self.aux_layers = config, operators, tuple(aux_layers)
        self.embedding = weights["embed_tokens.weight"]
        self.layers = [DecoderLayer(config, weights, i, operators) for i in range(config.num_hidden_layers)]
        self.norm = RmsNorm(weights["norm.weight"], config.rms_norm_eps, zero_centred=True)
        head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.head = Head(head, operators, "lm_head")
        self.rotary = Rotary(config.rope_theta, config.rotary_dim, self.embedding.device)

    def sequence(self, ids: Tensor, step: Step | None = None) -> Output:
        """Whole sequences `ids` [B, T] without caches; differentiable. Logits are `self.head(output.hidden)`.

        `step` says who sees whom where a sequence is more than one text; without it every token sees all before it.
        """
        positions = torch.arange(ids.shape[-1], device=ids.device)
        return self._forward(ids, step or SequenceStep(self.rotary, positions))

    def prefill(self, ids: Tensor, step: PrefillStep) -> Output:
        """The next chunk `ids` [T] of a prompt; the step says where it begins and owns the caches."""
        return self._forward(ids, step)

    def verify(self, ids: Tensor, step: VerifyStep) -> Output:
        """Up to eight rows `ids` [R] at consecutive positions."""
        return self._forward(ids, step)

    def _forward(self, ids: Tensor, step: Step) -> Output:
        x, aux = F.embedding(ids, self.embedding), {}
        for index, layer in enumerate(self.layers):
            x = layer(x, step)
            if index in self.aux_layers:
                aux[index] = x
        side_by_side = torch.cat([aux[i] for i in self.aux_layers], -1) if aux else None
        return Output(self.norm(x), side_by_side)


class Head:
    """Vocabulary logits in FP32 from hidden states [.., H] of any dtype, without rounding them to that dtype."""

    CPU_COLUMNS = 8192

    def __init__(self, weight: Tensor, operators: Operators, site: str) -> None:
        self.weight, self.linear = weight, Linear(weight, operators, site)

    def __call__(self, hidden: Tensor) -> Tensor:
        if hidden.dtype == torch.float32:
            return self.linear(hidden)
        rows = hidden.flatten(0, -2)
        if rows.is_cuda:
            logits = torch.mm(rows, self.weight.T, out_dtype=torch.float32)
        else:
            blocks = self.weight.split(self.CPU_COLUMNS)
            logits = torch.cat([F.linear(rows.float(), block.float()) for block in blocks], -1)
        return logits.view(*hidden.shape[:-1], -1)

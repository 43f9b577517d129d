"""The `qwen3_5` text decoder: GatedDeltaNet layers, gated full attention, zero-centred norms.

The decoder is written once. How a token reaches the tokens before it (a whole sequence, a paged cache, eight
verification rows) is a *step* from `runtime.models.steps`. Knows no sampling and no drafter, except that it hands out
the hidden states behind `aux_layers` on request.

Training: build `Target(config, tensors, operators)` on `Routes.differentiable()` from leaf tensors that require
gradients (assembly only concatenates, so gradients reach the leaves; rebuild it after every optimiser step) and call
`sequence(ids)`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import attention, gated_norm, gdn, output_gate, rotary, shortlist
from runtime.config import FULL, TargetConfig
from runtime.models.layers import Heads, Linear, Mlp, RmsNorm, Rotary, Weight, fused, scale_of
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
        self.layer, heads, kv_heads = layer, config.num_attention_heads, config.num_key_value_heads
        parts = [weights[f"{prefix}.{name}_proj.weight"] for name in "qkv"]
        self.qkv = fused(parts, operators, f"{prefix}.qkv")
        self.out = Linear(weights[f"{prefix}.o_proj.weight"], operators, f"{prefix}.o")
        q_scale, k_scale = (scale_of(weights[f"{prefix}.{name}_norm.weight"], zero_centred=True) for name in "qk")
        split = rotary.Heads(q_scale, k_scale, config.rms_norm_eps, heads, kv_heads, gated=True)
        self.heads = Heads(split, operators, f"{prefix}.rotary")
        self.operators, self.site, self.scale = operators, f"{prefix}.attention", config.head_dim**-0.5
        self.problems: dict[Hashable, attention.Problem] = {}
        self._gates: dict[Hashable, output_gate.Problem] = {}

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        qkv = self.qkv(x)
        out = step.attention(self, *self.heads(qkv, step.table, step.store(self.layer)))
        return self.out(self.gated(out, self.heads.layer.gate(qkv)))

    def gated(self, out: Tensor, gate: Tensor) -> Tensor:
        """`out * sigmoid(gate)` [.., Hq * D] of two [.., Hq, D]."""
        key = (out.shape, out.stride(), gate.stride(), out.dtype)
        problem = self._gates.get(key)
        if problem is None:
            problem = self._gates[key] = output_gate.problem_of(out, gate)
        return self.operators.run(f"{self.site}.gate", output_gate.OP, problem, out, gate)


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
        self.norm_scale = scale_of(weights[f"{prefix}.norm.weight"], zero_centred=False)
        self.out = Linear(weights[f"{prefix}.out_proj.weight"], operators, f"{prefix}.out")
        self.operators, self.site = operators, f"{prefix}.recurrence"
        self.problems: dict[Hashable, gdn.Problem] = {}
        self._norms: dict[Hashable, gated_norm.Problem] = {}

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        qkv, z, b, a = self.project(x).split(self.widths, -1)
        out = step.recurrence(self, qkv, a, b)
        return self.out(self.normed(out, z))

    def normed(self, out: Tensor, z: Tensor) -> Tensor:
        """`norm(out) * silu(z)` [.., Hv * Dv] of `out` [.., Hv, Dv]."""
        key = (out.shape, out.stride(), z.stride(), out.dtype)
        problem = self._norms.get(key)
        if problem is None:
            problem = self._norms[key] = gated_norm.problem_of(out, z)
        return self.operators.run(f"{self.site}.norm", gated_norm.OP, problem, out, z, self.norm_scale, self.eps)

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
        names = ("input_layernorm", "post_attention_layernorm")
        self.input_norm, self.post_norm = (
            RmsNorm(weights[f"{prefix}.{name}.weight"], eps, True, operators, f"{prefix}.{name}") for name in names
        )

    def __call__(self, x: Tensor, delta: Tensor | None, step: Step) -> tuple[Tensor, Tensor, Tensor]:
        """The stream at this layer's input, `x + delta`, and after it as a sum not yet made: (input, x, delta)."""
        entered, normed = self.input_norm.after(x, delta)
        x, normed = self.post_norm.after(entered, self.mixer(normed, step))
        return entered, x, self.mlp(normed)


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
        self.norm = RmsNorm(weights["norm.weight"], config.rms_norm_eps, True, operators, "norm")
        rows = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.head = Head(rows, operators, "lm_head")
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
        x, delta, aux = F.embedding(ids, self.embedding), None, {}
        for index, layer in enumerate(self.layers):
            entered, x, delta = layer(x, delta, step)
            if index - 1 in self.aux_layers:
                aux[index - 1] = entered
        last, normed = self.norm.after(x, delta)
        aux[len(self.layers) - 1] = last
        side_by_side = torch.cat([aux[i] for i in self.aux_layers], -1) if self.aux_layers else None
        return Output(normed, side_by_side)


class Head:
    """Vocabulary logits in FP32 from hidden states [.., H] of any dtype, without rounding them to that dtype."""

    CPU_COLUMNS = 8192

    def __init__(self, weight: Weight, operators: Operators, site: str) -> None:
        self.weight, self.linear = weight, Linear(weight, operators, site)
        self.table = shortlist.Table(weight) if isinstance(weight, Tensor) else None
        self.operators, self.site = operators, f"{site}.largest"
        self._problems: dict[Hashable, shortlist.Problem] = {}

    def largest(self, hidden: Tensor, wanted: int) -> Tensor:
        """Logits [R, V] of `hidden` [R, H], of which all but the `wanted` largest of a row may be -inf."""
        if self.table is None:
            return self(hidden)
        wanted = min(wanted, self.weight.shape[0])  # a rank has a part of the rows
        key = (hidden.shape, hidden.stride(), hidden.dtype, wanted)
        problem = self._problems.get(key)
        if problem is None:
            problem = self._problems[key] = shortlist.problem_of(hidden, self.table, wanted)
        return self.operators.run(self.site, shortlist.OP, problem, hidden, self.table, wanted, self)

    def __call__(self, hidden: Tensor) -> Tensor:
        if hidden.dtype == torch.float32:
            return self.linear(hidden)
        return self._wide(hidden.flatten(0, -2)).view(*hidden.shape[:-1], -1)

    def _wide(self, rows: Tensor) -> Tensor:
        if not isinstance(self.weight, Tensor):
            return self.linear.share(rows, self.linear.weight)
        if rows.is_cuda:
            return torch.mm(rows, self.weight.T, out_dtype=torch.float32)
        blocks = self.weight.split(self.CPU_COLUMNS)
        return torch.cat([F.linear(rows.float(), block.float()) for block in blocks], -1)

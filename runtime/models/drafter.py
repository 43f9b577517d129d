"""The DFlash 2 drafter: a block of masked positions filled in one forward, then one path chosen through its lattice.

The target's aux hidden states become context keys and values (`context`); the block's rows attend to that context and
to each other. Grouped dynamic causal convolutions surround attention and MLP. The candidate selector scores edges
between neighbouring positions. Embedding and head are the target's. Knows no cache layout and draws no random numbers.

Training: build `Drafter(config, tensors, target embedding, target head, operators)` from leaf tensors and call
`blocks(aux, anchors, anchor_ids)`, then `unary(hidden)` and `edge_scores`; all are differentiable.
"""

from collections.abc import Hashable, Mapping
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import block_attention, block_conv, rotary
from runtime.config import SLIDING, DraftConfig
from runtime.models.layers import Heads, Linear, Mlp, RmsNorm, Rotary, Weight, counting, fused, scale_of
from runtime.models.target import Head
from runtime.operators import Operators

Context = tuple[Tensor, Tensor, Tensor]
"""Injected keys and values [L, Hkv, D] of one layer and their positions [L]; negative ones are no context."""


class GroupedDynamicConv:
    """Causal taps over a block, before (side 0) and after (side 1) a sub-block.

    Tap t of a channel is `base_kernel[side, t]` plus a correction per token and group that the sub-block's input
    projects. Taps never reach across the block's first row.
    """

    def __init__(self, config: DraftConfig, weights: Mapping[str, Weight], prefix: str, operators: Operators) -> None:
        self.base = weights[f"{prefix}.base_kernel"]
        self.project = Linear(weights[f"{prefix}.kernel_projection.weight"], operators, f"drafter.{prefix}.kernel")
        self.taps = config.conv_kernel_size
        self.operators, self.site = operators, f"drafter.{prefix}"
        self._problems: dict[Hashable, block_conv.Problem] = {}

    def prepare(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The convolved input and the corrections that `finish` needs, for `x` [.., B, H]."""
        dynamic = self.project(x).unflatten(-1, (2, self.taps, -1))
        return self._convolve(x, dynamic[..., 0, :, :], self.base[0]), dynamic[..., 1, :, :]

    def finish(self, x: Tensor, dynamic: Tensor) -> Tensor:
        return self._convolve(x, dynamic, self.base[1])

    def _convolve(self, x: Tensor, dynamic: Tensor, base: Tensor) -> Tensor:
        key = (x.shape, x.stride(), dynamic.stride(), x.dtype)
        problem = self._problems.get(key)
        if problem is None:
            problem = self._problems[key] = block_conv.problem_of(x, dynamic, base)
        return self.operators.run(self.site, block_conv.OP, problem, x, dynamic, base)


class DraftAttention:
    """Queries from the block, keys and values from context and block; visible where |distance| < window."""

    def __init__(self, config: DraftConfig, weights: Mapping[str, Weight], layer: int, operators: Operators) -> None:
        prefix = f"layers.{layer}.self_attn"
        self.dim, self.causal = config.head_dim, config.causal_layers[layer]
        self.window = config.sliding_window if config.layer_types[layer] == SLIDING else None
        q, k, v = (weights[f"{prefix}.{name}_proj.weight"] for name in "qkv")
        self.qkv = fused((q, k, v), operators, f"drafter.{prefix}.qkv")
        self.context_kv = fused((k, v), operators, f"drafter.{prefix}.context_kv")
        self.out = Linear(weights[f"{prefix}.o_proj.weight"], operators, f"drafter.{prefix}.o")
        q_scale, k_scale = (scale_of(weights[f"{prefix}.{name}_norm.weight"], zero_centred=False) for name in "qk")
        eps, counts = config.rms_norm_eps, (config.num_attention_heads, config.num_key_value_heads)
        self.heads = Heads(rotary.Heads(q_scale, k_scale, eps, *counts), operators, f"drafter.{prefix}.rotary")
        of_context = rotary.Heads(None, k_scale, eps, 0, counts[1])
        self.context_heads = Heads(of_context, operators, f"drafter.{prefix}.context_rotary")
        self.operators, self.site = operators, f"drafter.{prefix}.attention"
        self._problems: dict[Hashable, block_attention.Problem] = {}

    def context(self, x: Tensor, table: rotary.Table) -> tuple[Tensor, Tensor]:
        """Keys and values [.., T, Hkv, D] of injected context."""
        _, k, v = self.context_heads(self.context_kv(x), table)
        return k, v

    def __call__(self, x: Tensor, block: "Block", context: "Context") -> Tensor:
        q, k, v = self.heads(self.qkv(x).flatten(0, 1), block.table)
        keys, values, positions = context
        seen = block_attention.Seen(keys, values, block.visible(positions, self.window, self.causal))
        key = (q.shape, k.stride(), v.stride(), keys.shape, q.dtype)
        problem = self._problems.get(key)
        if problem is None:
            problem = self._problems[key] = block_attention.problem_of(q, seen, k, v)
        out = self.operators.run(self.site, block_attention.OP, problem, q, seen, k, v, self.dim**-0.5)
        return self.out(out.flatten(-2)).view(x.shape)


class Block:
    """Blocks of `rows` consecutive positions [A, rows]: their rotary table and what each of their rows may see."""

    def __init__(self, rotary: Rotary, anchors: Tensor, rows: int) -> None:
        self.positions = anchors[:, None] + counting(rows, anchors.device)
        self.table = rotary.table(self.positions.flatten())
        self._masks: dict[tuple[int, int | None, bool], Tensor] = {}

    def visible(self, context: Tensor, window: int | None, causal: bool) -> Tensor:
        """[A * rows, L + A * rows]: context before the row's own anchor, and the row's own block."""
        key = (context.data_ptr(), window, causal)
        if key not in self._masks:
            self._masks[key] = self._mask(context, window, causal)
        return self._masks[key]

    def _mask(self, context: Tensor, window: int | None, causal: bool) -> Tensor:
        blocks, rows = self.positions.shape
        if blocks == 1 and not causal and (window is None or window >= rows):
            return self._mask_of_one(context, window)
        own = torch.arange(blocks, device=context.device).repeat_interleave(rows)
        before = context < self.positions[:, :1].expand(-1, rows).reshape(-1, 1)
        mask = torch.cat((before & (context >= 0), own[:, None] == own), 1)
        distance = self.positions.view(-1, 1) - torch.cat((context, self.positions.flatten()))
        if window is not None:
            mask &= (distance < window) & (distance > -window)
        return mask & (distance >= 0) if causal else mask

    def _mask_of_one(self, context: Tensor, window: int | None) -> Tensor:
        """The same of one block no longer than the window, all of which its rows see: a round's, in few launches."""
        first, rows = self.positions[0, :1], self.positions.T
        earliest = 0 if window is None else (rows - (window - 1)).clamp_min(0)
        before = (context < first) & (context >= earliest)
        return torch.cat((before.expand(len(rows), -1), _all_seen(len(rows), context.device)), 1)


@cache
def _all_seen(rows: int, device: torch.device) -> Tensor:
    return torch.ones(rows, rows, dtype=torch.bool, device=device)


@cache
def _masked(rows: int, mask_id: int, device: torch.device) -> Tensor:
    """Ids [1, rows] of masked rows."""
    return torch.full((1, rows), mask_id, device=device)


class DraftLayer:
    def __init__(self, config: DraftConfig, weights: Mapping[str, Weight], layer: int, operators: Operators) -> None:
        prefix, eps = f"layers.{layer}", config.rms_norm_eps
        self.attention = DraftAttention(config, weights, layer, operators)
        self.mlp = Mlp(weights, f"{prefix}.mlp", operators, part="drafter.")
        self.attention_conv = GroupedDynamicConv(config, weights, f"{prefix}.attention_conv", operators)
        self.mlp_conv = GroupedDynamicConv(config, weights, f"{prefix}.mlp_conv", operators)
        names = ("input_layernorm", "post_attention_layernorm")
        self.input_norm, self.post_norm = (
            RmsNorm(weights[f"{prefix}.{name}.weight"], eps, False, operators, f"drafter.{prefix}.{name}")
            for name in names
        )

    def __call__(self, x: Tensor, delta: Tensor | None, block: Block, context: Context) -> tuple[Tensor, Tensor]:
        """The stream `x + delta` after this layer, as a sum not yet made."""
        x, normed = self.input_norm.after(x, delta)
        inner, dynamic = self.attention_conv.prepare(normed)
        mixed = self.attention_conv.finish(self.attention(inner, block, context), dynamic)
        x, normed = self.post_norm.after(x, mixed)
        inner, dynamic = self.mlp_conv.prepare(normed)
        return x, self.mlp_conv.finish(self.mlp(inner), dynamic)


class Drafter:
    """The drafter of one target; `embedding` [V, H] and `head` are borrowed from it."""

    def __init__(
        self, config: DraftConfig, weights: Mapping[str, Weight], embedding: Tensor, head: Head, operators: Operators
    ) -> None:
        self.config, self.embedding, self.head = config, embedding, head
        self.fc = Linear(weights["fc.weight"], operators, "drafter.fc")
        self.hidden_norm, self.norm = (
            RmsNorm(weights[f"{name}.weight"], config.rms_norm_eps, False, operators, f"drafter.{name}")
            for name in ("hidden_norm", "norm")
        )
        self.layers = [DraftLayer(config, weights, i, operators) for i in range(config.num_hidden_layers)]
        self.rotary = Rotary(config.rope_theta, config.head_dim, embedding.device)
        self.hidden_projection = Linear(
            weights["candidate_selector.hidden_projection.weight"], operators, "drafter.selector"
        )
        self.predecessors = weights["candidate_selector.predecessor_codebook"]
        self.successors = weights["candidate_selector.successor_codebook"]

    def context(self, aux: Tensor, positions: Tensor, table: rotary.Table | None = None) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values [T, Hkv, D] that the aux hidden states [T, n * H] inject at `positions`.

        `table` is the rotary table of these, where it was made already.
        """
        injected, table = self.hidden_norm(self.fc(aux)), table or self.rotary.table(positions)
        return [layer.attention.context(injected, table) for layer in self.layers]

    def block(self, anchor_id: Tensor, start: Tensor, rows: int, context: list[Context]) -> Tensor:
        """Hidden states [rows - 1, H] of the masked rows behind the anchor `anchor_id` [1] at position `start` [1]."""
        return self._rows(anchor_id, Block(self.rotary, start, rows), rows, context)[0, 1:]

    def unary(self, hidden: Tensor) -> Tensor:
        """FP32 vocabulary scores [.., V] of masked rows."""
        logits, factor = self.head(hidden), self.config.output_multiplier
        logits = logits if factor == 1 else logits * factor
        cap = self.config.final_logit_softcapping
        return torch.tanh(logits / cap) * cap if cap else logits

    def best(self, hidden: Tensor, wanted: int) -> Tensor:
        """`unary` of `hidden` [R, H], of which all but the `wanted` largest of a row may be -inf.

        Not where scores are scaled or capped: rounding could make one that is left out equal one that is not.
        """
        plain = self.config.output_multiplier == 1 and not self.config.final_logit_softcapping
        return self.head.largest(hidden, wanted) if plain else self.unary(hidden)

    def edge_scores(self, projected: Tensor, unary: Tensor, candidates: Tensor, predecessor: Tensor) -> Tensor:
        """FP32 scores [.., K] of following `predecessor` [..] by each of `candidates` [.., K].

        `projected` [.., rank] is `hidden_projection` of the row, `unary` [.., K] the candidates' vocabulary scores.
        """
        query = (self.predecessors[predecessor] * projected)[..., None, :]
        return unary + (query * self.successors[candidates]).float().sum(-1)

    def blocks(self, aux: Tensor, anchors: Tensor, anchor_ids: Tensor) -> Tensor:
        """Hidden states [A, block - 1, H] of many blocks over one sequence's aux states [T, n * H]; for training.

        Block i has its anchor token `anchor_ids[i]` at position `anchors[i]` and sees context strictly before it; its
        masked row j proposes the token at position `anchors[i] + j`.
        """
        positions, rows = torch.arange(aux.shape[0], device=aux.device), self.config.block_size
        context = [(k, v, positions) for k, v in self.context(aux, positions)]
        return self._rows(anchor_ids, Block(self.rotary, anchors, rows), rows, context)[:, 1:]

    def _rows(self, anchor_ids: Tensor, block: Block, rows: int, context: list[Context]) -> Tensor:
        masks = _masked(rows - 1, self.config.mask_token_id, anchor_ids.device).expand(len(anchor_ids), -1)
        x = F.embedding(torch.cat((anchor_ids[:, None], masks), 1), self.embedding)
        if self.config.input_embedding_scale != 1.0:
            x = x * self.config.input_embedding_scale
        delta = None
        for layer, seen in zip(self.layers, context, strict=True):
            x, delta = layer(x, delta, block, seen)
        return self.norm.after(x, delta)[1]

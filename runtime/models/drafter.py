"""The DFlash 2 drafter: a block of masked positions filled in one forward, then one path chosen through its lattice.

The target's aux hidden states become context keys and values (`context`); the block's rows attend to that context and
to each other. Grouped dynamic causal convolutions surround attention and MLP. The candidate selector scores edges
between neighbouring positions. Embedding and head are the target's. Knows no cache layout and draws no random numbers.

Training: build `Drafter(config, tensors, target embedding, target head, operators)` from leaf tensors and call
`blocks(aux, anchors, anchor_ids)`, then `unary(hidden)` and `edge_scores`; all are differentiable.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from runtime.config import SLIDING, DraftConfig
from runtime.models.layers import Linear, Mlp, RmsNorm, Rotary, Weight, fused, softmax_attention
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
        self.taps, self.group = config.conv_kernel_size, config.conv_group_size

    def prepare(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The convolved input and the corrections that `finish` needs, for `x` [.., B, H]."""
        dynamic = self.project(x).unflatten(-1, (2, self.taps, -1))
        return self._convolve(x, dynamic[..., 0, :, :], self.base[0]), dynamic[..., 1, :, :]

    def finish(self, x: Tensor, dynamic: Tensor) -> Tensor:
        return self._convolve(x, dynamic, self.base[1])

    def _convolve(self, x: Tensor, dynamic: Tensor, base: Tensor) -> Tensor:
        out = None
        for tap in range(self.taps):
            # Padded, then cut: a narrow block may have fewer rows than the tap reaches back.
            shifted = x if tap == 0 else F.pad(x, (0, 0, tap, 0))[..., : x.shape[-2], :]
            values = shifted.unflatten(-1, (-1, self.group))
            kernel = base[tap].view(-1, self.group) + dynamic[..., tap, :, None]
            out = kernel * values if out is None else torch.addcmul(out, kernel, values)
        return out.flatten(-2)


class DraftAttention:
    """Queries from the block, keys and values from context and block; visible where |distance| < window."""

    def __init__(self, config: DraftConfig, weights: Mapping[str, Weight], layer: int, operators: Operators) -> None:
        prefix = f"layers.{layer}.self_attn"
        self.dim, self.causal = config.head_dim, config.causal_layers[layer]
        self.window = config.sliding_window if config.layer_types[layer] == SLIDING else None
        q, k, v = (weights[f"{prefix}.{name}_proj.weight"] for name in "qkv")
        self.widths = (q.shape[0], k.shape[0], v.shape[0])
        self.qkv = fused((q, k, v), operators, f"drafter.{prefix}.qkv")
        self.context_kv = fused((k, v), operators, f"drafter.{prefix}.context_kv")
        self.out = Linear(weights[f"{prefix}.o_proj.weight"], operators, f"drafter.{prefix}.o")
        self.q_norm = RmsNorm(weights[f"{prefix}.q_norm.weight"], config.rms_norm_eps, zero_centred=False)
        self.k_norm = RmsNorm(weights[f"{prefix}.k_norm.weight"], config.rms_norm_eps, zero_centred=False)

    def context(self, x: Tensor, rotary: Rotary, table: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keys and values [.., T, Hkv, D] of injected context."""
        k, v = (part.unflatten(-1, (-1, self.dim)) for part in self.context_kv(x).split(self.widths[1:], -1))
        return rotary(self.k_norm(k), table), v

    def __call__(self, x: Tensor, rotary: Rotary, block: "Block", context: "Context") -> Tensor:
        parts = self.qkv(x).flatten(0, 1).split(self.widths, -1)
        q, k, v = (part.unflatten(-1, (-1, self.dim)) for part in parts)
        q, k = rotary(self.q_norm(q), block.table), rotary(self.k_norm(k), block.table)
        keys, values, positions = context
        keys, values = torch.cat((keys.to(k.dtype), k)), torch.cat((values.to(v.dtype), v))
        mask = block.visible(positions, self.window, self.causal)
        out = softmax_attention(q, keys, values, mask, self.dim**-0.5)
        return self.out(out.flatten(-2)).view(x.shape)


class Block:
    """Blocks of `rows` consecutive positions [A, rows]: their rotary table and what each of their rows may see."""

    def __init__(self, rotary: Rotary, anchors: Tensor, rows: int) -> None:
        self.positions = anchors[:, None] + torch.arange(rows, device=anchors.device)
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
        own = torch.arange(blocks, device=context.device).repeat_interleave(rows)
        before = context < self.positions[:, :1].expand(-1, rows).reshape(-1, 1)
        mask = torch.cat((before & (context >= 0), own[:, None] == own), 1)
        distance = self.positions.view(-1, 1) - torch.cat((context, self.positions.flatten()))
        if window is not None:
            mask &= (distance < window) & (distance > -window)
        return mask & (distance >= 0) if causal else mask


class DraftLayer:
    def __init__(self, config: DraftConfig, weights: Mapping[str, Weight], layer: int, operators: Operators) -> None:
        prefix, eps = f"layers.{layer}", config.rms_norm_eps
        self.attention = DraftAttention(config, weights, layer, operators)
        self.mlp = Mlp(weights, f"{prefix}.mlp", operators, part="drafter.")
        self.attention_conv = GroupedDynamicConv(config, weights, f"{prefix}.attention_conv", operators)
        self.mlp_conv = GroupedDynamicConv(config, weights, f"{prefix}.mlp_conv", operators)
        self.input_norm = RmsNorm(weights[f"{prefix}.input_layernorm.weight"], eps, zero_centred=False)
        self.post_norm = RmsNorm(weights[f"{prefix}.post_attention_layernorm.weight"], eps, zero_centred=False)

    def __call__(self, x: Tensor, rotary: Rotary, block: Block, context: Context) -> Tensor:
        inner, dynamic = self.attention_conv.prepare(self.input_norm(x))
        x = x + self.attention_conv.finish(self.attention(inner, rotary, block, context), dynamic)
        inner, dynamic = self.mlp_conv.prepare(self.post_norm(x))
        return x + self.mlp_conv.finish(self.mlp(inner), dynamic)


class Drafter:
    """The drafter of one target; `embedding` [V, H] and `head` are borrowed from it."""

    def __init__(
        self, config: DraftConfig, weights: Mapping[str, Weight], embedding: Tensor, head: Head, operators: Operators
    ) -> None:
        self.config, self.embedding, self.head = config, embedding, head
        self.fc = Linear(weights["fc.weight"], operators, "drafter.fc")
        self.hidden_norm = RmsNorm(weights["hidden_norm.weight"], config.rms_norm_eps, zero_centred=False)
        self.layers = [DraftLayer(config, weights, i, operators) for i in range(config.num_hidden_layers)]
        self.norm = RmsNorm(weights["norm.weight"], config.rms_norm_eps, zero_centred=False)
        self.rotary = Rotary(config.rope_theta, config.head_dim, embedding.device)
        self.hidden_projection = Linear(
            weights["candidate_selector.hidden_projection.weight"], operators, "drafter.selector"
        )
        self.predecessors = weights["candidate_selector.predecessor_codebook"]
        self.successors = weights["candidate_selector.successor_codebook"]

    def context(self, aux: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values [T, Hkv, D] that the aux hidden states [T, n * H] inject at `positions`."""
        injected, table = self.hidden_norm(self.fc(aux)), self.rotary.table(positions)
        return [layer.attention.context(injected, self.rotary, table) for layer in self.layers]

    def block(self, anchor_id: Tensor, start: Tensor, rows: int, context: list[Context]) -> Tensor:
        """Hidden states [rows - 1, H] of the masked rows behind the anchor `anchor_id` [1] at position `start` [1]."""
        return self._rows(anchor_id, Block(self.rotary, start, rows), rows, context)[0, 1:]

    def unary(self, hidden: Tensor) -> Tensor:
        """FP32 vocabulary scores [.., V] of masked rows."""
        logits = self.head(hidden) * self.config.output_multiplier
        cap = self.config.final_logit_softcapping
        return torch.tanh(logits / cap) * cap if cap else logits

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
        masks = anchor_ids.new_full((len(anchor_ids), rows - 1), self.config.mask_token_id)
        x = F.embedding(torch.cat((anchor_ids[:, None], masks), 1), self.embedding)
        if self.config.input_embedding_scale != 1.0:
            x = x * self.config.input_embedding_scale
        for layer, seen in zip(self.layers, context, strict=True):
            x = layer(x, self.rotary, block, seen)
        return self.norm(x)

"""Training the drafter against a finished target: many blocks per lane, the target's own distributions as goal.

A block's anchor is any token of an answer. Its masked rows see the target's states before the anchor and learn what
the target would say at their positions; the selector learns the edges between neighbours among the candidates that the
head proposes. Nearer positions weigh more, because a position counts only if all before it were accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.routes import Routes
from runtime.config import DraftConfig
from runtime.models.drafter import Drafter, DraftLayer
from runtime.models.target import Target
from runtime.operators import Operators
from runtime.training.optimiser import Optimiser
from runtime.training.packed import PackedStep, masked_attention
from runtime.training.presets import Schedule
from runtime.training.replay import Replay
from runtime.training.target_training import Leaves, logits_of, rate_factor
from runtime.training.text import IGNORED, Batch

_POSITION_DECAY = 0.85


@dataclass(frozen=True)
class Blocks:
    """`anchors` [B, A] are places in a lane; rows 1..7 of a block aim at `ids` [B, A, 7] where `valid` [B, A, 7]."""

    anchors: Tensor
    anchor_ids: Tensor
    ids: Tensor
    valid: Tensor
    positions: Tensor


def choose_blocks(batch: Batch, count: int, block_size: int, generator: torch.Generator) -> Blocks:
    """`count` anchors per lane, uniformly among the answers' tokens that have a successor.

    A block that reaches beyond its answer is invalid there: the next row begins with a prompt longer than a block.
    """
    counted = batch.targets != IGNORED
    eligible = counted.clone()
    eligible[:, 1:] &= counted[:, :-1]
    eligible[:, 0] = False
    weights = eligible.float() + counted.float() * 1e-6  # an answer of one token has no anchor of its own
    anchors = torch.multinomial(weights, count, replacement=True, generator=generator)
    positions = anchors[..., None] + torch.arange(block_size, device=anchors.device)
    inside = positions.clamp(max=batch.ids.shape[1] - 1)
    row = torch.arange(len(anchors), device=anchors.device)[:, None, None]
    valid = (positions[..., 1:] < batch.ids.shape[1]) & counted[row, inside[..., 1:] - 1]
    return Blocks(anchors, batch.ids[row, inside][..., 0], batch.ids[row, inside][..., 1:], valid, positions)


def assemble_drafter(config: DraftConfig, leaves: Leaves, target: Target, dtype: torch.dtype) -> Drafter:
    cast = {name: leaf.to(dtype) for name, leaf in leaves.items()}
    return Drafter(config, cast, target.embedding, target.head, Operators(Routes.differentiable()))


def block_hidden(drafter: Drafter, aux: Tensor, blocks: Blocks, lane_rows: Tensor) -> Tensor:
    """Hidden states [B, A, 7, H] of all blocks at once; the batched form of `Drafter.blocks` for `lane_rows` [B, T]."""
    count, size = blocks.positions.shape[1:]
    table = drafter.rotary.table(blocks.positions.flatten())
    table = tuple(part.unflatten(0, (len(aux), count * size)) for part in table)
    context_positions = torch.arange(aux.shape[1], device=aux.device)
    context = drafter.context(aux, context_positions)
    mask = _mask(blocks, lane_rows, drafter.config.sliding_window)
    masks = blocks.anchor_ids[..., None].expand(-1, -1, size - 1).clone().fill_(drafter.config.mask_token_id)
    x = F.embedding(torch.cat((blocks.anchor_ids[..., None], masks), -1), drafter.embedding)
    for layer, keys_values in zip(drafter.layers, context, strict=True):
        x = _layer(drafter, layer, x, table, keys_values, mask)
    return drafter.norm(x)[:, :, 1:]


def _layer(
    drafter: Drafter,
    layer: DraftLayer,
    x: Tensor,
    table: tuple[Tensor, ...],
    context: tuple[Tensor, Tensor],
    mask: Tensor,
) -> Tensor:
    inner, dynamic = layer.attention_conv.prepare(layer.input_norm(x))
    attended = _attend(drafter, layer, inner, table, context, mask)
    x = x + layer.attention_conv.finish(attended, dynamic)
    inner, dynamic = layer.mlp_conv.prepare(layer.post_norm(x))
    return x + layer.mlp_conv.finish(layer.mlp(inner), dynamic)


def _attend(
    drafter: Drafter,
    layer: DraftLayer,
    x: Tensor,
    table: tuple[Tensor, ...],
    context: tuple[Tensor, Tensor],
    mask: Tensor,
) -> Tensor:
    attention = layer.attention
    rows = x.flatten(1, 2)
    q, k, v = attention.heads(attention.qkv(rows), table)
    keys, values = torch.cat((context[0], k), 1), torch.cat((context[1], v), 1)
    out = masked_attention(q, keys, values, mask, attention.dim**-0.5)
    return attention.out(out.flatten(-2)).view_as(x)


def _mask(blocks: Blocks, lane_rows: Tensor, window: int) -> Tensor:
    """True where a block's row sees a token of its text or a row of its own block: [B, 1, A * 8, T + A * 8]."""
    batch, count, size = blocks.positions.shape
    context = torch.arange(lane_rows.shape[1], device=lane_rows.device)
    positions = blocks.positions.flatten(1)[..., None]
    anchors = blocks.anchors.repeat_interleave(size, 1)[..., None]
    text = lane_rows.gather(1, blocks.anchors).repeat_interleave(size, 1)[..., None]
    seen = (context < anchors) & (positions - context < window) & (lane_rows[:, None] == text)
    own = torch.arange(count, device=context.device).repeat_interleave(size)
    same = (own[:, None] == own).expand(batch, -1, -1)
    return torch.cat((seen, same), -1)[:, None]


def draft_loss(drafter: Drafter, target: Target, hidden: Tensor, blocks: Blocks, goal: Tensor) -> Tensor:
    """Cross-entropy of the head's and of the selector's distributions against the target's, `goal` [.., 7, V]."""
    weight = blocks.valid * _POSITION_DECAY ** torch.arange(hidden.shape[-2], device=hidden.device)
    unary = logits_of(target, hidden)
    head_loss = -(goal * unary.log_softmax(-1)).sum(-1)
    candidates = unary.detach().topk(drafter.config.selector_top_k, -1).indices
    predecessors = torch.cat((blocks.anchor_ids[..., None], blocks.ids[..., :-1]), -1)
    scores = drafter.edge_scores(
        drafter.hidden_projection(hidden), unary.gather(-1, candidates), candidates, predecessors
    )
    edge_loss = -(goal.gather(-1, candidates) * scores.log_softmax(-1)).sum(-1)
    return ((head_loss + edge_loss) * weight).sum() / weight.sum().clamp(min=1)


class DraftTrainer:
    """The state of one run over a frozen target."""

    def __init__(
        self, config: DraftConfig, leaves: Leaves, target: Target, schedule: Schedule, anchors: int, seed: int
    ) -> None:
        self.config, self.leaves, self.target, self.schedule = config, leaves, target, schedule
        self.anchors = anchors
        self.optimiser = Optimiser(leaves, schedule.rate)
        self.generator = torch.Generator(target.embedding.device).manual_seed(seed)
        self.step = 0
        self._replay = Replay(self._update)

    def run(self, batches: Iterable[Batch], report: Callable[[int, Tensor], None]) -> None:
        for batch in batches:
            if self.step >= self.schedule.steps:
                return
            self.optimiser.factor.fill_(rate_factor(self.step, self.schedule))
            blocks = choose_blocks(batch, self.anchors, self.config.block_size, self.generator)
            loss = self._replay(batch.ids, batch.rows, *(getattr(blocks, field.name) for field in fields(Blocks)))
            report(self.step, loss.clone())
            self.step += 1

    def _update(self, ids: Tensor, lane_rows: Tensor, *parts: Tensor) -> Tensor:
        blocks = Blocks(*parts)
        aux, goal = self._teach(ids, lane_rows, blocks)
        drafter = assemble_drafter(self.config, self.leaves, self.target, self.target.embedding.dtype)
        loss = draft_loss(drafter, self.target, block_hidden(drafter, aux, blocks, lane_rows), blocks, goal)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    @torch.no_grad()
    def _teach(self, ids: Tensor, lane_rows: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """The target's aux states, and its distributions at the positions before each masked row's."""
        output = self.target.sequence(ids, PackedStep(self.target.rotary, lane_rows))
        assert output.aux is not None, "the target was assembled without aux layers"
        lane = torch.arange(len(ids), device=ids.device)[:, None, None]
        before = (blocks.positions[..., 1:] - 1).clamp(max=ids.shape[1] - 1)
        return output.aux, logits_of(self.target, output.hidden[lane, before]).softmax(-1)

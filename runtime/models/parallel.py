"""Tensor parallel: one process per rank, the same decoder with a share of every head, channel and vocabulary row.

Column-parallel weights are cut by output rows, row-parallel ones by input columns; the shares of a row-parallel
product are added in rank order in FP32 by the norm behind it (`kernels.publication`), so that every rank holds the same
bits. The head is cut by vocabulary; `runtime.engine.vocabulary` merges what the ranks find in their parts. The drafter
is cut likewise where its heads divide; embedding, convolutions and codebooks are whole on every rank. Equal bits give
equal tokens, so no token has to be sent; `Group.agree` carries what only one rank can know.

Knows no requests and no schedules.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from kernels import publication
from kernels.projection.fp8 import Fp8Weight
from kernels.projection.nvfp4 import GROUP
from kernels.publication import Ranks
from runtime.config import DraftConfig, TargetConfig
from runtime.errors import ModelError
from runtime.models import fp8, quant
from runtime.models.drafter import Drafter
from runtime.models.layers import Linear, RmsNorm, Weight
from runtime.models.target import Head, Target
from runtime.operators import Operators

_TIMEOUT = timedelta(minutes=10)
RANK_TIMEOUT_S = 30.0  # of a schedule that waits for a rank by itself
# torch 2.13 renames it and warns of the old name.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_DIVIDED = (
    "num_attention_heads",
    "num_key_value_heads",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "intermediate_size",
)
_DRAFT_DIVIDED = ("num_attention_heads", "num_key_value_heads", "intermediate_size")
_BY_INPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight", "linear_attn.out_proj.weight")
# Queries, keys and values lie one behind the other: each is cut by its own heads.
_BY_KIND = ("linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight")
_BY_OUTPUTS = re.compile(r"_proj(_[abz])?\.weight$|^lm_head\.weight$|linear_attn\.(A_log|dt_bias)$")


class Group:
    """The ranks of one engine on one host. `rendezvous` is a file that they all can see and nobody else uses.

    `ranks` is what schedules publish by; a rank that they wait for longer than `limit_s` is lost, see `Ranks.lost`.
    """

    def __init__(
        self, rank: int, size: int, device: torch.device, rendezvous: str, limit_s: float = RANK_TIMEOUT_S
    ) -> None:
        self.rank, self.size = rank, size
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend, init_method=f"file://{rendezvous}", rank=rank, world_size=size, timeout=_TIMEOUT
        )
        self._device = device
        self.ranks = Ranks(rank, size, self.gather, rendezvous, _apart(device, size), limit_s)

    def close(self) -> None:
        """Leave; every rank does. The next group of this process needs another rendezvous file."""
        dist.destroy_process_group()

    def gather(self, x: Tensor) -> list[Tensor]:
        """Every rank's `x`, in rank order; shapes are equal."""
        parts = x.new_empty(self.size * x.numel())
        _all_gather(parts, x.reshape(-1))
        return list(parts.view(self.size, *x.shape))

    def agree(self, flag: bool) -> bool:
        """Rank 0's flag, on every rank."""
        shared = torch.tensor([flag], dtype=torch.uint8, device=self._device)
        dist.broadcast(shared, 0)
        return bool(shared.item())

    def same(self, values: tuple[int, ...]) -> bool:
        """Whether every rank holds these values, by a 63-bit hash of them."""
        own = torch.tensor([hash(values) >> 1], dtype=torch.int64, device=self._device)
        return all(torch.equal(part, own) for part in self.gather(own))


def _apart(device: torch.device, size: int) -> str:
    """Why ranks on devices 0 to `size` - 1 cannot write into each other's memory; empty where they can."""
    if device.type != "cuda":
        return ""
    if size > torch.cuda.device_count():
        return f"{size} ranks and {torch.cuda.device_count()} GPUs in sight"
    far = [other for other in range(size) if other != device.index and not _reaches(device.index, other)]
    return f"GPU {device.index} does not reach the memory of GPU {far[0]}" if far else ""


def _reaches(device: int, other: int) -> bool:
    return torch.cuda.can_device_access_peer(device, other)


def shard_config(config: TargetConfig, size: int) -> TargetConfig:
    """One rank's decoder shape. The vocabulary stays whole: ids are global."""
    for name in (*_DIVIDED, "vocab_size"):
        if getattr(config, name) % size:
            raise ModelError(f"tensor-parallel size {size} does not divide {name} {getattr(config, name)}")
    return replace(config, **{name: getattr(config, name) // size for name in _DIVIDED})


def shard_draft(config: DraftConfig, size: int) -> DraftConfig:
    """One rank's drafter shape; the whole one, on every rank, where its heads and channels do not divide."""
    if any(getattr(config, name) % size for name in _DRAFT_DIVIDED):
        return config
    return replace(config, **{name: getattr(config, name) // size for name in _DRAFT_DIVIDED})


class ShardedWeights(Mapping[str, Weight]):
    """One rank's share of a checkpoint's tensors, cut as they are asked for; quantised linears stay so."""

    def __init__(self, whole: Mapping[str, Weight], config: TargetConfig | DraftConfig, rank: int, size: int) -> None:
        self._whole, self._config, self._rank, self._size = whole, config, rank, size

    def __getitem__(self, name: str) -> Weight:
        weight = self._whole[name]
        if isinstance(weight, Tensor):
            return self._share(name, weight)
        by_inputs = name.endswith(_BY_INPUTS)
        if isinstance(weight, Fp8Weight):
            return fp8.cut(weight, partial(self._share, name), by_inputs)
        if by_inputs and weight.k % (GROUP * self._size):
            raise ModelError(
                f"{name} has {weight.k} inputs, {GROUP} to a scale, and tensor-parallel size {self._size} would cut "
                "such a group: serve it without --keep-quantised"
            )
        return quant.cut(weight, partial(self._share, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)

    def _share(self, name: str, value: Tensor) -> Tensor:
        if name.endswith(_BY_INPUTS):
            return self._cut(value, 1)
        if name.endswith(_BY_KIND):
            widths = (self._config.key_dim, self._config.key_dim, self._config.value_dim)
            return torch.cat([self._cut(part, 0) for part in value.split(widths)])
        return self._cut(value, 0) if _BY_OUTPUTS.search(name) else value

    def _cut(self, value: Tensor, axis: int) -> Tensor:
        return value.chunk(self._size, axis)[self._rank].contiguous()


@dataclass(frozen=True, eq=False)
class Share:
    """A rank's part of a row-parallel product, not yet made: its rows and the projection."""

    rows: Tensor
    linear: Linear


class RowParallel:
    """A row-parallel projection. Its product is made, added up and published by the norm behind it."""

    def __init__(self, linear: Linear) -> None:
        self._linear = linear

    def __call__(self, x: Tensor) -> Share:
        return Share(x, self._linear)


class Summed:
    """A row-parallel projection whose product is added up at once, by the same operator without a norm."""

    def __init__(self, linear: Linear, ranks: Ranks, operators: Operators) -> None:
        self._linear, self._ranks, self._operators = linear, ranks, operators
        self._problems: dict[Hashable, publication.Problem] = {}

    def __call__(self, x: Tensor) -> Tensor:
        linear, rows = self._linear, x.reshape(-1, x.shape[-1])
        key = (rows.shape, rows.dtype)
        problem = self._problems.get(key)
        if problem is None:
            problem = self._problems[key] = publication.problem_of(rows, linear.weight, None, self._ranks)
        operands = (rows, linear.weight, None, None, 0.0, self._ranks, linear.share)
        product, _ = self._operators.run(f"{linear.site}.publication", publication.OP, problem, *operands)
        return product.view(*x.shape[:-1], -1)


class PublishingNorm:
    """An RMSNorm before which the ranks' shares of a product are added up, through the `publication` operator."""

    def __init__(self, norm: RmsNorm, ranks: Ranks, operators: Operators) -> None:
        self._norm, self._ranks, self._operators = norm, ranks, operators
        self._problems: dict[Hashable, publication.Problem] = {}

    def after(self, x: Tensor, delta: Tensor | Share | None) -> tuple[Tensor, Tensor]:
        """`x + delta` and its norm [M, N]."""
        if not isinstance(delta, Share):
            return self._norm.after(x, delta)
        linear, norm = delta.linear, self._norm
        key = (delta.rows.shape, x.stride(0), x.dtype)
        problem = self._problems.get(key)
        if problem is None:
            problem = self._problems[key] = publication.problem_of(delta.rows, linear.weight, x, self._ranks)
        operands = (delta.rows, linear.weight, x, norm.scale, norm.eps, self._ranks, linear.share, norm.after)
        return self._operators.run(f"{linear.site}.publication", publication.OP, problem, *operands)


def parallelise(target: Target, group: Group, operators: Operators) -> None:
    """Turn a decoder made of one rank's weights into that rank's part of the whole."""

    def publishing(norm: RmsNorm) -> PublishingNorm:
        return PublishingNorm(norm, group.ranks, operators)

    for layer in target.layers:
        layer.mixer.out, layer.mlp.down = RowParallel(layer.mixer.out), RowParallel(layer.mlp.down)
        layer.input_norm, layer.post_norm = publishing(layer.input_norm), publishing(layer.post_norm)
    target.norm = publishing(target.norm)
    if target.config.tie_word_embeddings:
        rows = target.embedding.chunk(group.size)[group.rank].contiguous()
        target.head = Head(rows, operators, "lm_head")


def parallelise_draft(drafter: Drafter, group: Group, operators: Operators) -> None:
    """Turn a drafter made of one rank's shares into that rank's part of the whole."""
    for layer in drafter.layers:
        layer.attention.out = Summed(layer.attention.out, group.ranks, operators)
        layer.mlp.down = Summed(layer.mlp.down, group.ranks, operators)

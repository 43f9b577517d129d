"""Tensor parallel: one process per rank, the same decoder with a share of every head, channel and vocabulary row.

Column-parallel weights are cut by output rows, row-parallel ones by input columns; a row-parallel product is summed
over the ranks in rank order in FP32, so that every rank holds the same bits. The head is cut by vocabulary;
`runtime.engine.vocabulary` merges what the ranks find in their parts. Embedding and drafter are whole on every rank.
Equal bits give equal tokens, so no token has to be sent; `Group.agree` carries what only one rank can know.

Knows no requests and no kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from kernels.projection.nvfp4 import GROUP
from runtime.config import TargetConfig
from runtime.errors import ModelError
from runtime.models import quant
from runtime.models.layers import Linear, Weight
from runtime.models.target import Head, Target
from runtime.operators import Operators

_TIMEOUT = timedelta(minutes=10)
_DIVIDED = (
    "num_attention_heads",
    "num_key_value_heads",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "intermediate_size",
)
_BY_INPUTS = ("self_attn.o_proj.weight", "mlp.down_proj.weight", "linear_attn.out_proj.weight")
# Queries, keys and values lie one behind the other: each is cut by its own heads.
_BY_KIND = ("linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight")
_BY_OUTPUTS = re.compile(r"_proj(_[abz])?\.weight$|^lm_head\.weight$|linear_attn\.(A_log|dt_bias)$")


class Group:
    """The ranks of one engine on one host. `rendezvous` is a file that they all can see and nobody else uses."""

    def __init__(self, rank: int, size: int, device: torch.device, rendezvous: str) -> None:
        self.rank, self.size = rank, size
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend, init_method=f"file://{rendezvous}", rank=rank, world_size=size, timeout=_TIMEOUT
        )
        self._device = device

    def close(self) -> None:
        """Leave; every rank does. The next group of this process needs another rendezvous file."""
        dist.destroy_process_group()

    def gather(self, x: Tensor) -> list[Tensor]:
        """Every rank's `x`, in rank order; shapes are equal."""
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous())
        return parts

    def sum(self, x: Tensor) -> Tensor:
        """Partial products added in rank order in FP32, rounded once to the type of `x`."""
        first, *others = self.gather(x)
        total = first.float()
        for part in others:
            total = total + part.float()
        return total.to(x.dtype)

    def agree(self, flag: bool) -> bool:
        """Rank 0's flag, on every rank."""
        shared = torch.tensor([flag], dtype=torch.uint8, device=self._device)
        dist.broadcast(shared, 0)
        return bool(shared.item())

    def same(self, values: tuple[int, ...]) -> bool:
        """Whether every rank holds these values, by a 63-bit hash of them."""
        own = torch.tensor([hash(values) >> 1], dtype=torch.int64, device=self._device)
        return all(torch.equal(part, own) for part in self.gather(own))


def shard_config(config: TargetConfig, size: int) -> TargetConfig:
    """One rank's decoder shape. The vocabulary stays whole: ids are global."""
    for name in (*_DIVIDED, "vocab_size"):
        if getattr(config, name) % size:
            raise ModelError(f"tensor-parallel size {size} does not divide {name} {getattr(config, name)}")
    return replace(config, **{name: getattr(config, name) // size for name in _DIVIDED})


class ShardedWeights(Mapping[str, Weight]):
    """One rank's share of a checkpoint's tensors, cut as they are asked for; 4-bit linears stay in 4 bits."""

    def __init__(self, whole: Mapping[str, Weight], config: TargetConfig, rank: int, size: int) -> None:
        self._whole, self._config, self._rank, self._size = whole, config, rank, size

    def __getitem__(self, name: str) -> Weight:
        weight = self._whole[name]
        if isinstance(weight, Tensor):
            return self._share(name, weight)
        if name.endswith(_BY_INPUTS) and weight.k % (GROUP * self._size):
            raise ModelError(
                f"{name} has {weight.k} inputs, {GROUP} to a scale, and tensor-parallel size {self._size} would cut "
                "such a group: serve it without --keep-nvfp4"
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


class Summed:
    """A row-parallel projection: every rank's partial product, added up."""

    def __init__(self, linear: Linear, group: Group) -> None:
        self._linear, self._group = linear, group

    def __call__(self, x: Tensor) -> Tensor:
        return self._group.sum(self._linear(x))


def parallelise(target: Target, group: Group, operators: Operators) -> None:
    """Turn a decoder made of one rank's weights into that rank's part of the whole."""
    for layer in target.layers:
        layer.mixer.out = Summed(layer.mixer.out, group)
        layer.mlp.down = Summed(layer.mlp.down, group)
    if target.config.tie_word_embeddings:
        rows = target.embedding.chunk(group.size)[group.rank].contiguous()
        target.head = Head(rows, operators, "lm_head")

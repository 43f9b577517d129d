"""Key/value memory: the target's paged cache and the drafter's window of context K/V.

A page table maps a request's logical pages to physical ones in any order. Values are stored in the cache's own dtype;
E4M3 is rounded to nearest even and saturates at 448 (NaN stays NaN). Knows no models and no sampling.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.commit import Window
from kernels.rotary import Store
from runtime.config import SLIDING, DraftConfig, TargetConfig
from runtime.errors import CapacityError

E4M3 = torch.float8_e4m3fn
CACHE_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "fp8_e4m3": E4M3}
PAGE_ALIGNMENT = 16


def hybrid_pages(target: TargetConfig, draft: DraftConfig | None, dtype: torch.dtype, rows: int = 8) -> tuple[int, int]:
    """Tokens per page of the target's and of the drafter's cache, so that all kinds of page have one size in bytes.

    A page covers one GDN state slot (recurrent FP32 plus its 16-bit convolution window) with the smallest multiple of
    16 of the smaller token; the larger token then fixes the bytes. Public shape, E4M3 and a 16-bit drafter:
    (3296, 1648) for eight rows, (3456, 1728) for sixteen. The ranks of a tensor-parallel group share the rule,
    because slot and token shrink alike.
    """
    slot = target.value_dim * target.linear_key_head_dim * 4
    window = target.conv_dim * (target.linear_conv_kernel_dim - 1 + rows - 1) * 2
    token = 2 * target.num_key_value_heads * target.head_dim * dtype.itemsize
    draft_token = 2 * draft.num_key_value_heads * draft.head_dim * 2 if draft else token
    small, large = sorted((token, draft_token))
    base = PAGE_ALIGNMENT * -(-(slot + window) // (PAGE_ALIGNMENT * small))
    return base * large // token, base * large // draft_token


class PagedCache:
    """K and V pages [pages, page_size, Hkv, D] of each full-attention layer, for one request of `capacity` tokens."""

    def __init__(
        self, config: TargetConfig, capacity: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        if page_size < 1:
            raise CapacityError(f"page size {page_size} is not positive")
        self.page_size, self.capacity, self.dtype = page_size, capacity, dtype
        num_pages = -(-capacity // page_size)
        shape = (num_pages, page_size, config.num_key_value_heads, config.head_dim)
        self.k = {i: torch.zeros(shape, dtype=dtype, device=device) for i in config.full_layers}
        self.v = {i: torch.zeros(shape, dtype=dtype, device=device) for i in config.full_layers}
        self.page_table = torch.arange(num_pages, dtype=torch.int32, device=device)
        self._slot_of = torch.arange(num_pages * page_size, device=device)

    def remap(self, pages: Sequence[int]) -> None:
        """Use this permutation of the physical pages; contents do not move, so only an empty cache may be remapped."""
        assert sorted(pages) == list(range(len(self.page_table))), f"{pages} is no permutation of the pages"
        self.page_table.copy_(torch.tensor(pages, dtype=torch.int32))
        within = torch.arange(self.page_size, device=self.page_table.device)
        self._slot_of.copy_((self.page_table.long()[:, None] * self.page_size + within).flatten())

    def slots(self, positions: Tensor) -> Tensor:
        """Physical token slots (int64) of logical `positions` [T]; shared by all layers of one forward."""
        return self._slot_of[positions]

    def store(self, layer: int, slots: Tensor) -> Store:
        """Where rows of K and V of a layer go, at physical `slots` [T]."""
        return Store(self.k[layer], self.v[layer], slots)

    def saved(self, length: int, device: torch.device) -> list[Tensor]:
        """The bytes of the pages that hold the first `length` tokens, on `device`: K and V of each layer in turn."""
        pages = self._pages_of(length)
        return [_bytes(pool)[pages].to(device) for pool in self._pools()]

    def size_bytes(self, length: int) -> int:
        """Of the pages that hold the first `length` tokens."""
        return sum(pool[0].numel() * pool.element_size() for pool in self._pools()) * -(-length // self.page_size)

    def restore(self, length: int, saved: Sequence[Tensor]) -> None:
        pages = self._pages_of(length)
        for pool, held in zip(self._pools(), saved, strict=True):
            _bytes(pool)[pages] = held.to(pool.device)

    def _pages_of(self, length: int) -> Tensor:
        return self.page_table[: -(-length // self.page_size)].long()

    def _pools(self) -> list[Tensor]:
        return [pool for layer in self.k for pool in (self.k[layer], self.v[layer])]

    def read(self, layer: int, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The first `length` tokens as K, V [length, Hkv, D] in `dtype`."""
        pages = self._pages_of(length)
        k, v = (_pages(x[layer], pages).flatten(0, 1)[:length].to(dtype) for x in (self.k, self.v))
        return k, v


class DraftCache:
    """Context K/V of the drafter, one ring of token slots per layer: position `p` lives in slot `p % ring`.

    A sliding layer looks back `sliding_window` positions, so a ring of window + block slots holds all that any row of
    a block can see. Rows that verification rejected and rows that a later row of the same store evicts are padding:
    they write nothing.
    """

    def __init__(self, config: DraftConfig, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        rings = [draft_ring(config, i, capacity) for i in range(config.num_hidden_layers)]
        shape = (config.num_key_value_heads, config.head_dim)
        self.k = [torch.zeros(ring, *shape, dtype=dtype, device=device) for ring in rings]
        self.v = [torch.zeros(ring, *shape, dtype=dtype, device=device) for ring in rings]
        self.rings = rings
        self.length = 0
        self.device_length = torch.zeros(1, dtype=torch.long, device=device)
        self._behind = {ring: -1 - torch.arange(ring, device=device) for ring in set(rings)}

    def store(self, first: int, keep: int, rows: list[tuple[Tensor, Tensor]]) -> None:
        """Store the first `keep` rows of each layer's (k, v) [T, Hkv, D], at positions `first`, `first + 1`, …"""
        assert first == self.length, f"context K/V starts at {first}, the cache ends at {self.length}"
        positions = torch.arange(first, first + keep, device=self.device_length.device)
        slots = {ring: positions[max(0, keep - ring) :] % ring for ring in self.rings}
        for ring, keys, values, (k, v) in zip(self.rings, self.k, self.v, rows, strict=True):
            begin = keep - len(slots[ring])
            keys.index_copy_(0, slots[ring], k[begin:keep].to(keys.dtype))
            values.index_copy_(0, slots[ring], v[begin:keep].to(values.dtype))
        self._end(first + keep)

    def window(self, rows: Tensor) -> Window:
        """What `kernels.commit` writes context `rows` [layers, 2, T, Hkv, D] into, T <= ring, without the host."""
        return Window(rows, tuple(zip(self.k, self.v, strict=True)), self.device_length)

    def follow(self, first: int, keep: int) -> None:
        """The host's part of a commit that kept `keep` rows from position `first`."""
        assert first == self.length, f"context K/V starts at {first}, the cache ends at {self.length}"
        self.length = first + keep

    def visible(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Per layer K, V [L, Hkv, D] and positions [L] (int64) of what its ring holds, in slot order."""
        return self._layers({ring: min(self.length, ring) for ring in self.rings})

    def whole(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """As `visible`, but all slots, so that shapes never change: slots not yet filled have negative positions."""
        return self._layers({ring: ring for ring in self.rings})

    def saved(self, device: torch.device) -> list[Tensor]:
        """What the rings hold, on `device`: K and V of each layer in turn."""
        return [slots[: min(self.length, len(slots))].to(device, copy=True) for slots in (*self.k, *self.v)]

    def restore(self, length: int, saved: Sequence[Tensor]) -> None:
        self.reset()
        for slots, held in zip((*self.k, *self.v), saved, strict=True):
            slots[: len(held)] = held.to(slots.device)
        self._end(length)

    def reset(self) -> None:
        """Forget a request. Slots are cleared, because `whole` shows those not yet filled: zero times NaN is NaN."""
        for slots in (*self.k, *self.v):
            slots.zero_()
        self._end(0)

    def _layers(self, held: dict[int, int]) -> list[tuple[Tensor, Tensor, Tensor]]:
        positions = {ring: self._positions(ring, count) for ring, count in held.items()}
        layers = zip(self.rings, self.k, self.v, strict=True)
        return [(k[: held[ring]], v[: held[ring]], positions[ring]) for ring, k, v in layers]

    def _positions(self, ring: int, count: int) -> Tensor:
        """The last position that each of the first `count` slots has had, by the length on the device."""
        age = (self.device_length + self._behind[ring][:count]) % ring  # how long before the last position
        return self.device_length - 1 - age

    def _end(self, length: int) -> None:
        self.length = length
        self.device_length.fill_(length)


def draft_ring(config: DraftConfig, layer: int, capacity: int) -> int:
    window = config.sliding_window + config.block_size
    return min(window, capacity) if config.layer_types[layer] == SLIDING else capacity


def target_cache_bytes(config: TargetConfig, capacity: int, page_size: int, dtype: torch.dtype) -> int:
    tokens = -(-capacity // page_size) * page_size
    token = 2 * config.num_key_value_heads * config.head_dim * dtype.itemsize
    return len(config.full_layers) * tokens * token


def draft_cache_bytes(config: DraftConfig, capacity: int, dtype: torch.dtype) -> int:
    token = 2 * config.num_key_value_heads * config.head_dim * dtype.itemsize
    return sum(draft_ring(config, i, capacity) for i in range(config.num_hidden_layers)) * token


def _bytes(pool: Tensor) -> Tensor:
    return pool.view(torch.uint8)


def _pages(pool: Tensor, pages: Tensor) -> Tensor:
    if pool.dtype == E4M3:
        return pool.view(torch.uint8)[pages].view(E4M3)
    return pool[pages]

"""Plain Triton versions of two operators, as peers: what a short kernel without this project's layouts reaches.

Split-KV attention over contiguous E4M3 keys and values, eight queries, six heads a KV head; NVFP4 decode-and-dot from
the checkpoint's layout with split K and atomic sums. Neither is a schedule: no paging, no row lengths, no fixed order.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def attention_split(
    q, k, v, numerator, maximum, total, tokens, scale, split_tokens,
    GROUP: tl.constexpr, QUERIES: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    split, head = tl.program_id(0), tl.program_id(1)
    rows, dims = tl.arange(0, M), tl.arange(0, D)
    query = rows // GROUP
    real = rows < QUERIES * GROUP
    at = ((query * HEADS + head) * GROUP + rows % GROUP)[:, None] * D + dims[None, :]
    q_tile = tl.load(q + at, mask=real[:, None], other=0.0)
    acc = tl.zeros([M, D], tl.float32)
    top = tl.full([M], -float("inf"), tl.float32)
    summed = tl.zeros([M], tl.float32)
    end = tl.minimum((split + 1) * split_tokens, tokens)
    last = tokens - QUERIES + query
    for first in range(split * split_tokens, end, N):
        token = first + tl.arange(0, N)
        inside = token < end
        place = (token.to(tl.int64) * HEADS + head)[:, None] * D + dims[None, :]
        keys = tl.load(k + place, mask=inside[:, None], other=0.0).to(tl.float16)
        scores = tl.dot(q_tile, tl.trans(keys)) * scale
        scores = tl.where((token[None, :] <= last[:, None]) & inside[None, :], scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp2(top - higher)
        p = tl.exp2(scores - higher[:, None])
        summed = summed * shrink + tl.sum(p, 1)
        values = tl.load(v + place, mask=inside[:, None], other=0.0).to(tl.float16)
        high = p.to(tl.float16)
        acc = tl.dot(high, values, acc * shrink[:, None])
        acc = tl.dot((p - high.to(tl.float32)).to(tl.float16), values, acc)
        top = higher
    base = (split * HEADS + head) * M
    tl.store(numerator + (base + rows)[:, None] * D + dims[None, :], acc)
    tl.store(maximum + base + rows, top)
    tl.store(total + base + rows, summed)


@triton.jit
def attention_merge(
    numerator, maximum, total, out, splits,
    GROUP: tl.constexpr, D: tl.constexpr, M: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    row, head, dims = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    top, summed = -float("inf"), 0.0
    acc = tl.zeros([D], tl.float32)
    for split in range(splits):
        base = (split * HEADS + head) * M + row
        its = tl.load(maximum + base)
        higher = tl.maximum(top, its)
        shrink, weight = tl.exp2(top - higher), tl.exp2(its - higher)
        acc = acc * shrink + weight * tl.load(numerator + base * D + dims)
        summed = summed * shrink + weight * tl.load(total + base)
        top = higher
    tl.store(out + ((row // GROUP * HEADS + head) * GROUP + row % GROUP) * D + dims, acc / summed)


class SplitAttention:
    """`run(q [8, Hq, 256] FP16, k, v [tokens, Hkv, 256] E4M3)`, the last row seeing every token."""

    def __init__(self, q_heads: int, kv_heads: int) -> None:
        self.splits, self.heads, self.group = 66 * 4 // kv_heads, kv_heads, q_heads // kv_heads
        self.numerator = torch.empty(self.splits, kv_heads, 64, 256, device="cuda")
        self.maximum, self.total = torch.empty(2, self.splits, kv_heads, 64, device="cuda")
        self.out = torch.empty(8, q_heads, 256, device="cuda")

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tokens, group, heads = k.shape[0], self.group, self.heads
        each = triton.cdiv(triton.cdiv(tokens, self.splits), 64) * 64
        used = triton.cdiv(tokens, each)
        scale = 256**-0.5 * math.log2(math.e)
        parts = (self.numerator, self.maximum, self.total)
        attention_split[(used, heads)](
            q, k, v, *parts, tokens, scale, each, group, 8, 256, 64, 64, heads, num_warps=4, num_stages=2
        )
        attention_merge[(8 * group, heads)](*parts, self.out, used, group, 256, 64, heads, num_warps=1)
        return self.out


@triton.jit
def nvfp4_dot(x, packed, scales, out, N, K, scale, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    columns, rows = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, 16)
    acc = tl.zeros([BN, 16], tl.float32)
    for first in range(tl.program_id(1) * BK, K, BK * SPLIT):
        pairs = first // 2 + tl.arange(0, BK // 2)
        codes = tl.load(packed + columns[:, None] * (K // 2) + pairs[None, :], mask=columns[:, None] < N, other=0)
        even = (((codes & 7).to(tl.uint16) << 9) | ((codes & 8).to(tl.uint16) << 12)).to(tl.float16, bitcast=True)
        odd = (((codes & 0x70).to(tl.uint16) << 5) | ((codes & 0x80).to(tl.uint16) << 8)).to(tl.float16, bitcast=True)
        groups = (first // 16 + tl.arange(0, BK // 16))[None, :]
        its = tl.load(scales + columns[:, None] * (K // 16) + groups, mask=columns[:, None] < N, other=0.0)
        its = tl.reshape(tl.broadcast_to(its.to(tl.float16)[:, :, None], [BN, BK // 16, 8]), [BN, BK // 2])
        at = x + rows[None, :] * K + (first + 2 * tl.arange(0, BK // 2))[:, None]
        x_even = tl.load(at, mask=rows[None, :] < 8, other=0.0)
        x_odd = tl.load(at + 1, mask=rows[None, :] < 8, other=0.0)
        acc = tl.dot(even * its, x_even, acc)
        acc = tl.dot(odd * its, x_odd, acc)
    place = out + rows[None, :] * N + columns[:, None]
    tl.atomic_add(place, acc * scale, mask=(rows[None, :] < 8) & (columns[:, None] < N))


def nvfp4_project(x: Tensor, packed: Tensor, scales: Tensor, n: int, global_scale: float) -> Tensor:
    """FP32 [8, n] of `x` [8, K] FP16; the decoded code is 2^-14 of its value."""
    out = x.new_zeros(8, n, dtype=torch.float32)
    k = x.shape[1]
    nvfp4_dot[(triton.cdiv(n, 64), 4)](
        x, packed, scales, out, n, k, 2.0**14 / global_scale, 64, 256, 4, num_warps=4, num_stages=3
    )
    return out

"""The numerical contract of verify attention, in FP64.

Row `i` of `q` [R, Hq, D] sees keys `[0, row_lengths[i])` of its KV head `h // (Hq / Hkv)`; token `t` lives in page
`page_table[t // page_size]` at `t % page_size`. A row of length zero gives zeros.

    out[i, h] = sum_t softmax_t(scale * <q[i, h], k[t]>) * v[t]

K and V are decoded exactly (E4M3 has no scale here). A schedule accumulates scores, the softmax sum and the value sum
in FP32 or better, keeps probabilities to FP32 accuracy (or as FP16 plus its rounding residual), and rounds once to
the dtype of `q`. Lengths are read on the device: a schedule never asks the host for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def gather(pages: torch.Tensor, page_table: torch.Tensor, length: int, dtype: torch.dtype) -> torch.Tensor:
    """The first `length` tokens of a paged cache [pages, page_size, Hkv, D] as [Hkv, length, D] in `dtype`."""
    page_size = pages.shape[1]
    # A page id of -1 pads the table; nothing below `length` lives there.
    wanted = page_table[: -(-length // page_size)].long().clamp(min=0)
    if pages.element_size() == 1:  # torch has no index kernel for float8: move the bytes
        bytes_dtype = page_table.new_empty(0).byte().dtype
        tokens = pages.view(bytes_dtype)[wanted].view(pages.dtype)
    else:
        tokens = pages[wanted]
    return tokens.flatten(0, 1)[:length].to(dtype).transpose(0, 1)


def attend(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    row_lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """FP64 [R, Hq, D], one KV head at a time; not rounded to the dtype of `q`."""
    rows, q_heads, head_dim = q.shape
    kv_heads, longest = k_pages.shape[2], int(row_lengths.max())
    wide = q.double()
    out = wide.new_zeros(rows, q_heads, head_dim)
    if longest == 0:
        return out
    group = q_heads // kv_heads
    keys, values = (gather(pages, page_table, longest, q.dtype) for pages in (k_pages, v_pages))
    hidden = row_lengths[:, None, None] <= row_lengths.new_ones(longest).cumsum(0) - 1
    for head in range(kv_heads):
        heads = slice(head * group, (head + 1) * group)
        scores = scale * (wide[:, heads] @ keys[head].double().T)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        weights = weights.masked_fill((row_lengths == 0)[:, None, None], 0.0)
        out[:, heads] = weights @ values[head].double()
    return out

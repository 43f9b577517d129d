"""The default verify attention: gather the pages, then torch's matmul and softmax in FP32.

On the CPU only the pages that the longest row needs are gathered. On another device that length is not known to the
host, so every page of the table is, and the mask does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.attention.problem import Problem
from kernels.attention.reference import gather
from kernels.registry import Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def guard(problem: Problem) -> Refusal | None:
    """Takes everything: it is what runs where another schedule refuses."""
    return None


def run(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    row_lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """`q` [R, Hq, D] against paged K and V -> [R, Hq, D] in the dtype of `q`."""
    rows, q_heads, head_dim = q.shape
    kv_heads, on_host = k_pages.shape[2], q.device.type == "cpu"
    length = int(row_lengths.max()) if on_host else page_table.shape[0] * k_pages.shape[1]
    wide = q.float()
    if length == 0:
        return q.new_zeros(q.shape)
    keys, values = (gather(pages, page_table, length, wide.dtype) for pages in (k_pages, v_pages))
    grouped = wide.view(rows, kv_heads, -1, head_dim).transpose(0, 1)
    scores = scale * (grouped.flatten(1, 2) @ keys.transpose(1, 2)).unflatten(1, (rows, -1))
    position = row_lengths.new_ones(length).cumsum(0) - 1
    weights = scores.masked_fill(row_lengths[:, None, None] <= position, float("-inf")).softmax(-1)
    weights = weights.masked_fill((row_lengths == 0)[:, None, None], 0.0)
    # Beyond every row a page may hold anything, and zero times NaN is NaN.
    values = values.masked_fill((position >= row_lengths.max())[:, None], 0.0)
    out = (weights.flatten(1, 2) @ values).unflatten(1, (rows, -1)).transpose(0, 1)
    return out.reshape(rows, q_heads, head_dim).to(q.dtype)


SCHEDULE = Schedule(
    name="gathered",
    revision=1,
    contract=Bound(
        rel_l2=2e-3, float32=1e-5, statement="FP32 scores, softmax and sums in the library's order, one rounding"
    ),
    guard=guard,
    run=run,
    summary="torch: gather pages, matmul, softmax",
)

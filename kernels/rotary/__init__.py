"""What stands between a layer's q/k/v projection and its attention: norms of heads, rotary positions, the cache write.

`run(qkv [.., T, W], heads, table, store) -> (q [.., T, Hq, D], k, v [.., T, Hkv, D])`: `heads` is the layer's, `table`
the cos and sin of its positions. With a `store` k and v go to its slots, in its dtype, and None comes back for both.
"""

from __future__ import annotations

from kernels.registry import Op
from kernels.rotary import cuda, reference, separate
from kernels.rotary.problem import Heads, Problem, Store, Table, problem_of

__all__ = ["OP", "Heads", "Problem", "Store", "Table", "problem_of"]

OP = Op(
    name="rotary",
    reference=reference.rotary,
    schedules=(separate.SCHEDULE, cuda.SCHEDULE),
    default="separate",
)

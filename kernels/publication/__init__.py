"""Publication of a row-parallel projection: every rank's partial rows in rank order, the residual, the norm behind it.

`run(x [M, K / ranks], weight [N, K / ranks], residual [M, N], scale FP32 [N], eps, ranks, project, norm) -> (s, y)`,
both [M, N] in the dtype of x: `s` is residual plus product, `y` the norm of `s`. `project(x, weight)` makes
FP32 partial rows and `norm(residual, product)` the sum and its norm, for schedules that do not fuse them. Without a
residual, a scale and a norm both are the product.

Every rank runs it at the same point, and all get the same bytes.
"""

from __future__ import annotations

from kernels.publication import cpu, cuda, gathered, reference, stream
from kernels.publication.problem import Problem, problem_of
from kernels.publication.ranks import Mail, Ranks
from kernels.registry import Op

__all__ = ["OP", "Mail", "Problem", "Ranks", "problem_of"]

OP = Op(
    name="publication",
    reference=reference.publish,
    schedules=(gathered.SCHEDULE, cpu.SCHEDULE, cuda.SCHEDULE, stream.SCHEDULE),
    default="gathered",
)

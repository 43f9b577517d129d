"""Every operator of the package, listed rather than discovered."""

from __future__ import annotations

from kernels import attention, gated, gdn, projection, selection
from kernels.errors import UnknownOperator
from kernels.registry import Op

OPERATORS: tuple[Op, ...] = (projection.OP, gated.OP, attention.OP, gdn.OP, selection.OP)


def operator(name: str) -> Op:
    for op in OPERATORS:
        if op.name == name:
            return op
    known = ", ".join(op.name for op in OPERATORS)
    raise UnknownOperator(f"no operator {name!r}; there are: {known}")

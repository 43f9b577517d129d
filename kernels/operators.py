"""Every operator of the package, listed rather than discovered."""

from __future__ import annotations

from kernels import (
    accept,
    attention,
    block_attention,
    block_conv,
    commit,
    gated,
    gated_norm,
    gdn,
    norm,
    output_gate,
    prefill_attention,
    prefill_gated,
    prefill_gdn,
    prefill_projection,
    projection,
    publication,
    rotary,
    selection,
    shortlist,
    walk,
)
from kernels.errors import UnknownOperator
from kernels.registry import Op

OPERATORS: tuple[Op, ...] = (
    norm.OP,
    projection.OP,
    publication.OP,
    gated.OP,
    rotary.OP,
    attention.OP,
    output_gate.OP,
    gdn.OP,
    gated_norm.OP,
    block_conv.OP,
    block_attention.OP,
    shortlist.OP,
    selection.OP,
    walk.OP,
    accept.OP,
    commit.OP,
    prefill_projection.OP,
    prefill_gated.OP,
    prefill_attention.OP,
    prefill_gdn.OP,
)


def operator(name: str) -> Op:
    for op in OPERATORS:
        if op.name == name:
            return op
    known = ", ".join(op.name for op in OPERATORS)
    raise UnknownOperator(f"no operator {name!r}; there are: {known}")

"""Selection on the CPU in C++: one pass over each row, one logit at a time or 32.

Nothing of the vocabulary is copied. Values are copied and never computed, so both give the sort's bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING

from kernels.native.library import call, native
from kernels.native.machine import X86_64_V3, cpu_arch
from kernels.native.specification import BuildSpec
from kernels.registry import Bitwise, Refusal, Schedule, first_refusal, refuse_unless
from kernels.selection.problem import Candidates, Problem

if TYPE_CHECKING:
    import torch

# An insertion moves up to k entries; beyond this a sort is the better idea.
MAX_K = 256
RUN = (c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_int64, c_int64)


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(problem.dtype == "float32", f"logits are {problem.dtype}; only float32"),
            refuse_unless(problem.k <= MAX_K, f"k is {problem.k}; up to {MAX_K}"),
        )
    )


def runner(spec: BuildSpec) -> Callable[..., Candidates]:
    """`run(logits, k)` through the library of `spec`."""

    def run(logits: torch.Tensor, k: int) -> Candidates:
        rows, vocab = logits.shape
        limit = k + 1
        values = logits.new_empty(rows, limit)
        ids = logits.new_empty(rows, limit, dtype=values.long().dtype)
        entry = native(spec, cpu_arch()).entry("run", RUN)
        call(entry, logits.data_ptr(), logits.stride(0), values.data_ptr(), ids.data_ptr(), rows, vocab, limit)
        return Candidates(values, ids)

    return run


def schedule(name: str, wide: bool, summary: str) -> Schedule:
    build = BuildSpec(
        operator="selection",
        schedule=name,
        revision=1,
        language="c++",
        sources=("selection/scan.cpp",),
        flags=(f"-DWIDE={int(wide)}",),
    )
    return Schedule(
        name=name,
        revision=1,
        contract=Bitwise(parent="sort"),
        guard=guard,
        run=runner(build),
        machine=X86_64_V3,
        build=build,
        summary=summary,
    )


SCAN = schedule("cpu-scan", wide=False, summary="C++, one pass, one logit at a time")
SCAN_32 = schedule("cpu-scan32", wide=True, summary="C++, one pass, 32 logits at a time")

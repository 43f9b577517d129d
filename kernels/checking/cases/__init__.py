"""Problems with operands, for gates, benchmarks and tests: one module per operator, one `Trial` per problem.

A trial owns its operands at fixed addresses and changes them in place, so that a captured graph meets the changes.
Knows what an operator takes; knows no schedule's inside and judges nothing.
"""

from __future__ import annotations

from importlib import import_module

from kernels.checking.cases.trial import Case
from kernels.registry import Op


def cases_of(op: Op, device: str) -> tuple[Case, ...]:
    """Every problem of an operator on one device type."""
    module = import_module(f"kernels.checking.cases.{op.name}")
    return tuple(case for case in module.CASES if case.device == device)


def sanitized_of(op: Op) -> tuple[Case, ...]:
    """The CUDA problems a sanitizer looks at: every length, few heads, since it takes a hundred times as long."""
    return tuple(import_module(f"kernels.checking.cases.{op.name}").SANITIZED)


def hammered_of(op: Op) -> tuple[Case, ...]:
    """The CUDA problems launched thousands of times in a row."""
    return tuple(import_module(f"kernels.checking.cases.{op.name}").HAMMERED)


def working_sets_of(op: Op, device: str) -> tuple[tuple[Case, int], ...]:
    """Problems to time and how many distinct layers of each, the preferred one first."""
    return tuple(import_module(f"kernels.checking.cases.{op.name}").WORKING_SETS[device])

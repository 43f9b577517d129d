"""One launch between two projections on Hopper, begun beside the kernel before it: what such schedules share.

They load four values at once, take the 16-bit types, promise the bytes of torch's separate operations, and are built
from one source each, `csrc/<operator>/<schedule>.cu`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernels.native.machine import HOPPER
from kernels.native.specification import BuildSpec
from kernels.registry import Bitwise, Refusal, Schedule

if TYPE_CHECKING:
    import torch

TYPES = {"float16": 0, "bfloat16": 1}
PIECE = 4  # values a thread loads at once


def type_of(x: torch.Tensor) -> int:
    return TYPES[str(x.dtype).removeprefix("torch.")]


def piecewise(x: torch.Tensor) -> torch.Tensor:
    """`x` as a kernel loads it, `PIECE` values at once: itself, but for a view that starts in between."""
    return x if x.data_ptr() % (PIECE * x.element_size()) == 0 and x.stride(-1) == 1 else x.clone().contiguous()


def build(operator: str, schedule: str) -> BuildSpec:
    return BuildSpec(
        operator=operator,
        schedule=schedule,
        revision=1,
        language="cuda",
        sources=(f"{operator}/{schedule}.cu",),
        headers=("include/abi.h", "include/rms.cuh", "include/sm90.cuh"),
    )


def schedule(spec: BuildSpec, guard: Callable[[Any], Refusal | None], run: Callable[..., Any], what: str) -> Schedule:
    """The schedule that `spec` builds; `what` says what a thread or block has."""
    return Schedule(
        name=spec.schedule,
        revision=spec.revision,
        contract=Bitwise(parent="separate"),
        guard=guard,
        run=run,
        machine=HOPPER,
        build=spec,
        summary=f"Hopper, one launch, {what}, beside the kernel before it",
    )

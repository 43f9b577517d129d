"""GDN verification on CUDA in one launch with one reduction a row, over tiles of 16 value columns.

`csrc/gdn/joint.cu` states the order of operations, which is not that of the two launches of `kernels.gdn.cuda`: the
sums over the state before a row are taken together, and lengths are applied to them. `shared.cu` convolves q and k of a
key head once for its three value heads, and gives the same bytes; it needs enough key heads to fill the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kernels.gdn import cuda
from kernels.gdn.problem import Layer, Problem, State
from kernels.native.machine import HOPPER
from kernels.native.specification import BuildSpec
from kernels.registry import Bitwise, Bound, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

ACTIVATIONS, MAX_SLOTS, GROUP = ("float16", "bfloat16"), 8, 3


def guard(problem: Problem) -> Refusal | None:
    stride = problem.row_strides[0] if problem.row_strides else problem.channels
    return first_refusal(
        (
            cuda.guard(problem),
            refuse_unless(problem.table_slots <= MAX_SLOTS, f"{problem.table_slots} slots; at most {MAX_SLOTS}"),
            refuse_unless(problem.dtype in ACTIVATIONS, f"qkv is {problem.dtype}; one of {', '.join(ACTIVATIONS)}"),
            refuse_unless(stride % 8 == 0, f"rows of qkv {stride} elements apart; a multiple of 8"),
            refuse_unless(
                problem.weight_dtype in (problem.dtype, "float32"),
                f"weights are {problem.weight_dtype}; {problem.dtype} or float32",
            ),
        )
    )


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` at a multiple of 16 bytes: itself, or a copy of a view that starts in between."""
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


def runner(spec: BuildSpec) -> Callable[..., torch.Tensor]:
    launch = cuda.runner(spec)

    def run(qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, layer: Layer, state: State) -> torch.Tensor:
        assert state.window.data_ptr() % 16 == 0, "the window starts between two multiples of 16 bytes"
        if layer.conv_weight.data_ptr() % 16:
            layer = replace(layer, conv_weight=layer.conv_weight.clone())
        return launch(aligned(qkv), a, b, layer, state)

    return run


def shared_guard(problem: Problem) -> Refusal | None:
    group = problem.value_heads / problem.key_heads
    return first_refusal(
        (
            guard(problem),
            refuse_unless(group == GROUP, f"{group:g} value heads a key head; only {GROUP}"),
            refuse_unless(problem.table_slots == MAX_SLOTS, f"{problem.table_slots} slots; only {MAX_SLOTS}"),
        )
    )


def schedule(
    name: str, takes: Callable[[Problem], Refusal | None], contract: Bound | Bitwise, summary: str, *flags: str
) -> Schedule:
    spec = BuildSpec(
        operator="gdn",
        schedule=name,
        revision=1,
        language="cuda",
        sources=(f"gdn/{name.partition('-')[0]}.cu",),
        headers=cuda.HEADERS,
        flags=flags,
    )
    return Schedule(name, 1, contract, takes, runner(spec), HOPPER, spec, summary)


BOUND = Bound(
    rel_l2=2e-3,
    statement="FP32 state, gates and sums: 16 chunks of 8 keys, balanced tree; one rounding of out",
    parent="bv8",
)
SCHEDULES = (
    schedule("joint-bv16", guard, BOUND, "CUDA, one launch, two warps per 16 value columns, one reduction a row"),
    schedule(
        "shared-bv16", shared_guard, Bitwise(parent="joint-bv16"), "CUDA, joint-bv16 for a key head's three at once"
    ),
    schedule(
        "shared-bv16-alone",
        shared_guard,
        Bitwise(parent="joint-bv16"),
        "CUDA, shared-bv16, a block per multiprocessor however early it starts",
        "-DGDN_ALONE=1",
    ),
)

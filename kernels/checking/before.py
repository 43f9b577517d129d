"""Launches after a kernel that finishes late, on shared memory full of ones, and in a crowd; native CUDA only.

A programmatic launch begins beside the kernel before it and must wait before it reads what that one writes. A launch
on its own never shows whether it does: here the kernel before lets it begin at once, holds the operands of another
state, and writes the right ones half a millisecond later. And what shared memory holds from before is nobody's
business: a launch that reads a word which it did not write meets ones there instead of what it left itself. Blocks that
fit on the device together begin together, and what one of them does too early, or twice, is seen by none: in a crowd
they find one multiprocessor free, or 32 KB of one, and the later ones begin when earlier ones have ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from ctypes import c_int, c_int64, c_void_p
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernels.checking.cases.trial import Trial
from kernels.checking.checks import Finding, check_bytes
from kernels.native.device import multiprocessors
from kernels.native.library import call, native
from kernels.native.machine import cuda_arch
from kernels.native.specification import BuildSpec
from kernels.registry import Schedule

BUILD = BuildSpec(
    operator="checking",
    schedule="before",
    revision=2,
    language="cuda",
    sources=("checking/before.cu",),
    headers=("include/abi.h", "include/sm90.cuh"),
)
LATE_NS = 500_000  # the host needs some tens of microseconds to launch what is checked
FILL_NS = 30_000
TURNS = 3
STAY_NS, LONGEST_NS, COMES_S, ROOM_BYTES = 300_000, 50_000_000, 1.0, 33 * 1024


def tensors(held: Any) -> Iterator[Tensor]:
    """Every tensor that a trial holds, in containers and in dataclasses too."""
    if isinstance(held, Tensor):
        yield held
    elif is_dataclass(held) and not isinstance(held, type):
        yield from tensors([getattr(held, field.name) for field in fields(held)])
    elif isinstance(held, dict):
        yield from tensors(list(held.values()))
    elif isinstance(held, (list, tuple)):
        for one in held:
            yield from tensors(one)


def allocations(trial: Trial) -> list[Tensor]:
    """The bytes [N] of each allocation that a trial holds a tensor of, once each."""
    found: dict[int, Tensor] = {}
    for tensor in tensors(vars(trial)):
        if tensor.device.type == torch.device(trial.device).type:
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    return list(found.values())


def changing(trial: Trial) -> list[tuple[Tensor, Tensor]]:
    """Allocations that another state changes, with its bytes; the trial is left in its first."""
    other = "changed" if "changed" in trial.states else trial.states[1]
    trial.set_state(other)
    every = allocations(trial)
    there = [allocation.clone() for allocation in every]
    trial.set_state(trial.states[0])
    return [(here, bytes_) for here, bytes_ in zip(every, there, strict=True) if not torch.equal(here, bytes_)]


def after_late_writes(schedule: Schedule, operands: list[tuple[Tensor, Tensor]]) -> Schedule:
    """`schedule`, whose run finds the operands as they are now only once the kernel before it has finished."""
    entry = native(BUILD, cuda_arch(torch.cuda.current_device())).entry(
        "late", (c_void_p, c_int, c_int, c_int64, c_void_p)
    )

    def run(*arguments: Any) -> Any:
        right = [here.clone() for here, _ in operands]
        for here, wrong in operands:
            here.copy_(wrong)
        rows = [
            (here.data_ptr(), bytes_.data_ptr(), here.numel())
            for (here, _), bytes_ in zip(operands, right, strict=True)
        ]
        table, stream = torch.tensor(rows, device="cuda"), torch.cuda.current_stream().cuda_stream
        call(entry, table.data_ptr(), len(rows), multiprocessors(None), LATE_NS, stream)
        result = schedule.run(*arguments)
        torch.cuda.synchronize()  # before the table and the right bytes may be given to others
        return result

    return replace(schedule, run=run)


def after_ones(schedule: Schedule) -> Schedule:
    """`schedule`, which finds shared memory full of ones."""
    entry = native(BUILD, cuda_arch(torch.cuda.current_device())).entry("fill", (c_int, c_int64, c_void_p))

    def run(*arguments: Any) -> Any:
        call(entry, multiprocessors(None), FILL_NS, torch.cuda.current_stream().cuda_stream)
        return schedule.run(*arguments)

    return replace(schedule, run=run)


def in_a_crowd(schedule: Schedule, whole: bool = True) -> Schedule:
    """`schedule`, whose blocks find a `whole` multiprocessor, or a part of it, until a while after all was launched."""
    arguments = (c_void_p, c_void_p, c_int, c_int, c_int, c_int64, c_int64, c_void_p)
    entry = native(BUILD, cuda_arch(torch.cuda.current_device())).entry("crowd", arguments)
    beside = [torch.cuda.Stream() for _ in range(2)]

    def run(*arguments: Any) -> Any:
        there = torch.zeros(2, dtype=torch.int32, device="cuda")
        told = torch.zeros(2, 2, dtype=torch.int32).pin_memory()
        torch.cuda.synchronize()
        # The larger ones first: a multiprocessor has no room for two of them.
        for at, (rest, leaves) in enumerate(((1, whole), (0, True))):
            places = there[at:].data_ptr(), told[at].data_ptr()
            call(entry, *places, ROOM_BYTES, rest, int(leaves), STAY_NS, LONGEST_NS, beside[at].cuda_stream)
            until = time.monotonic() + COMES_S
            while not told[at, 0] and time.monotonic() < until:
                pass
        try:
            return schedule.run(*arguments)
        finally:
            told[:, 1] = 1
            torch.cuda.synchronize()  # before `there` and `told` may be given to others

    return replace(schedule, run=run)


def in_a_queue(schedule: Schedule) -> Schedule:
    return in_a_crowd(schedule, whole=False)


WAYS = (("after-ones", after_ones), ("in-a-crowd", in_a_crowd), ("in-a-queue", in_a_queue))


def findings(schedule: Schedule, trial: Trial) -> Iterator[Finding]:
    """The bytes of a launch on its own, each time."""
    operands = changing(trial)
    want = {name: tensor.clone() for name, tensor in trial.run(schedule).items()}
    for turn in range(TURNS):
        got = check_bytes(trial.run(after_late_writes(schedule, operands)), want, f"after-late-writes-{turn}")
        yield Finding(got.check.removeprefix("bytes/"), got.passed, got.message)
    for state in trial.states:
        trial.set_state(state)
        want = {name: tensor.clone() for name, tensor in trial.run(schedule).items()}
        for name, other in WAYS:
            got = check_bytes(trial.run(other(schedule)), want, f"{name}/{state}")
            yield Finding(got.check.removeprefix("bytes/"), got.passed, got.message)

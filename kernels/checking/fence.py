"""CPU operands that end where the next page may not be touched: a read beyond them, discarded or not, ends the process.

Guard bytes see what was written; nothing else sees what was read in vain (on CUDA memcheck does). Each problem runs
once in a forked child whose operands and outputs are made so. Knows trials and no operator.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor

from kernels.checking import compare
from kernels.checking.cases.trial import Case, Draw
from kernels.checking.checks import Finding
from kernels.registry import Schedule

_LIBC = ctypes.CDLL(None, use_errno=True)
_UNTOUCHABLE = 0  # PROT_NONE


def fenced(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A poisoned tensor whose last byte is the last of its page, with an untouchable page behind it."""
    size = torch.Size(shape).numel() * dtype.itemsize
    if not size:
        return torch.zeros(shape, dtype=dtype)
    own = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    region = mmap.mmap(-1, own + mmap.PAGESIZE)
    behind = ctypes.addressof(ctypes.c_char.from_buffer(region)) + own
    if _LIBC.mprotect(ctypes.c_void_p(behind), ctypes.c_size_t(mmap.PAGESIZE), _UNTOUCHABLE):
        raise OSError(ctypes.get_errno(), "a page cannot be protected")
    raw = torch.frombuffer(region, dtype=torch.uint8, count=size, offset=own - size)
    return raw.fill_(compare.POISON).view(dtype).view(shape)


def copied(values: Tensor) -> Tensor:
    copy = fenced(tuple(values.shape), values.dtype)
    return copy.copy_(values)


@contextmanager
def fences() -> Iterator[None]:
    """Inside, what a trial draws or clones and outputs that a schedule allocates are fenced."""

    def guarded(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> compare.Guarded:
        made = fenced(shape, dtype)
        return compare.Guarded(made, made.flatten()[:0].view(torch.uint8))

    def behind(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *operands, **named: copied(draw(*operands, **named))

    with (
        mock.patch.object(compare, "guarded", guarded),
        mock.patch.object(torch.Tensor, "clone", copied),
        mock.patch.object(Draw, "normal", behind(Draw.normal)),
        mock.patch.object(Draw, "permutation", behind(Draw.permutation)),
        mock.patch.object(Draw, "integers", behind(Draw.integers)),
    ):
        yield


def finding(schedule: Schedule, case: Case) -> Finding:
    """One run in every place of the trial."""
    code = os.waitstatus_to_exitcode(os.waitpid(_child(schedule, case), 0)[1])
    told = f"{signal.Signals(-code).name}: something beyond the end of an operand was touched" if code < 0 else ""
    return Finding("fence", code == 0, told or ("the run raised; standard error has it" if code else ""))


def _child(schedule: Schedule, case: Case) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child computes in one thread and starts none
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        faulthandler.disable()
        torch.set_num_threads(1)
        _run(schedule, case)
        code = 0
    except BaseException as error:
        print(f"{case.id}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _run(schedule: Schedule, case: Case) -> None:
    with fences():
        trial = case.make("cpu")
        for place in trial.places:
            trial.set_state(place)
            with compare.poisoned_allocations():
                trial.run(schedule)

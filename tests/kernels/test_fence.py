"""Reads and writes beyond the end of a CPU operand, which no comparison of results sees."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernels.checking import fence
from kernels.checking.cases import cases_of
from kernels.operators import operator

OP = operator("selection")
SORT = OP.schedule("sort")
CASE = next(case for case in cases_of(OP, "cpu") if "pad" not in case.id)


def end_of(tensor: Tensor) -> int:
    return tensor.data_ptr() + tensor.numel() * tensor.element_size()


def reads_on(logits: Tensor, k: int) -> object:
    ctypes.string_at(end_of(logits), 1)
    return SORT.run(logits, k)


def reads_on_behind_its_output(logits: Tensor, k: int) -> object:
    ctypes.string_at(end_of(logits.new_empty(3)), 1)
    return SORT.run(logits, k)


def raises(logits: Tensor, k: int) -> object:
    raise ValueError(f"{k} of {logits.shape}")


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (SORT.run, ""),
        (reads_on, "SIGSEGV"),
        (reads_on_behind_its_output, "SIGSEGV"),
        (raises, "raised"),
    ],
    ids=["sound", "operand", "output", "exception"],
)
def test_one_byte_beyond_is_seen(run: Callable[..., object], told: str) -> None:
    found = fence.finding(replace(SORT, run=run), CASE)
    assert found.passed == (not told) and told in found.message


def test_a_fenced_tensor_holds_what_it_is_given_up_to_its_last_byte() -> None:
    for dtype in (torch.float32, torch.float16, torch.int64, torch.float8_e4m3fn):
        values = torch.arange(5).reshape(5, 1).to(dtype)
        copy = fence.copied(values)
        assert torch.equal(copy.float(), values.float())
        assert end_of(copy) % 4096 == 0
    assert fence.fenced((0, 3), torch.float32).shape == (0, 3)

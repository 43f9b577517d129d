"""Comparing tensors by bytes and by error, and allocations that betray a kernel which leaves its own.

Knows tensors; knows no operator. torch is imported at the top: only gates, benchmarks and tests come here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

# 1 KiB keeps every alignment a kernel may ask for. All bits set is NaN in every float format and -1 in integers.
GUARD_BYTES = 1024
POISON = 0xFF


def as_bytes(tensor: Tensor) -> Tensor:
    """A flat uint8 view of the values in logical order, -0.0 and NaN payloads included."""
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def same_bytes(got: Tensor, want: Tensor) -> bool:
    same_kind = got.dtype == want.dtype and got.shape == want.shape
    return same_kind and torch.equal(as_bytes(got), as_bytes(want))


def first_difference(got: Tensor, want: Tensor) -> str | None:
    """Where two tensors first differ and by what, or None where every byte agrees."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}"
    if same_bytes(got, want):
        return None
    size = got.element_size()
    differs = (as_bytes(got) != as_bytes(want)).view(-1, size).any(1)
    flat = int(differs.nonzero()[0])
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), got.shape))
    values = got.flatten()[flat].item(), want.flatten()[flat].item()
    return f"{int(differs.sum())} of {got.numel()} differ, first at {place}: {values[0]!r} instead of {values[1]!r}"


def rel_l2(got: Tensor, want: Tensor) -> float:
    """Relative L2 error in FP64; infinite where `got` is not finite, absolute where `want` is all zero."""
    if not bool(got.isfinite().all()):
        return float("inf")
    error, size = (got.double() - want.double()).norm(), want.double().norm()
    return float(error / size) if float(size) else float(error)


@dataclass(frozen=True, eq=False)
class Guarded:
    """A poisoned tensor inside a larger poisoned allocation."""

    tensor: Tensor
    raw: Tensor

    def intact(self) -> bool:
        """True where no byte in front of or behind the tensor changed."""
        size = self.tensor.numel() * self.tensor.element_size()
        outside = (self.raw[:GUARD_BYTES], self.raw[GUARD_BYTES + size :])
        return all(bool((part == POISON).all()) for part in outside)


def guarded(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Guarded:
    """A poisoned tensor of that shape with poison on both sides."""
    size = torch.Size(shape).numel() * dtype.itemsize
    raw = torch.full((GUARD_BYTES + size + GUARD_BYTES,), POISON, dtype=torch.uint8, device=device)
    tensor = raw[GUARD_BYTES : GUARD_BYTES + size].view(dtype).view(shape)
    return Guarded(tensor, raw)


def inside_poison(values: Tensor, pad: int = 0) -> Tensor:
    """The same values in a poisoned allocation, each row of the last axis followed by `pad` poisoned elements."""
    shape = (*values.shape[:-1], values.shape[-1] + pad)
    copy = guarded(shape, values.dtype, values.device).tensor[..., : values.shape[-1]]
    copy.copy_(values)
    return copy


def _shape_of(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    first = arguments[0] if arguments else ()
    return tuple(first) if isinstance(first, (tuple, list, torch.Size)) else tuple(arguments)


@contextmanager
def poisoned_allocations() -> Iterator[list[Guarded]]:
    """Inside, `torch.empty`, `torch.empty_like`, `Tensor.new_empty` and `torch.zeros` give guarded tensors.

    Yields them as they come. Zeros are a kernel's scratch memory, made on its first use.

    An output a kernel forgot to write is NaN, one it wrote beyond no longer is intact.
    """
    made: list[Guarded] = []

    def keep(shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
        made.append(guarded(shape, dtype, device))
        return made[-1].tensor

    def empty(*shape: Any, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
        return keep(_shape_of(shape), dtype or torch.get_default_dtype(), device or "cpu")

    def empty_like(like: Tensor, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
        return keep(tuple(like.shape), dtype or like.dtype, device or like.device)

    def new_empty(own: Tensor, *shape: Any, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
        return keep(_shape_of(shape), dtype or own.dtype, device or own.device)

    def zeros(*shape: Any, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
        return empty(*shape, dtype=dtype, device=device).zero_()

    with (
        mock.patch.object(torch, "empty", empty),
        mock.patch.object(torch, "zeros", zeros),
        mock.patch.object(torch, "empty_like", empty_like),
        mock.patch.object(torch.Tensor, "new_empty", new_empty),
    ):
        yield made

"""Scratch memory of the native CUDA schedules: one for each shape, one more for captured graphs. Runs on the CPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernels.native import device

CPU = torch.device("cpu")


@pytest.fixture
def capturing(monkeypatch):
    state = SimpleNamespace(now=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.now)
    monkeypatch.setattr(device, "_made", {})
    return state


def library(size_bytes: int) -> SimpleNamespace:
    return SimpleNamespace(name="one", sha256="ab", entry=lambda name, types: lambda *shape: size_bytes)


def test_shapes_of_equal_size_do_not_share(capturing):
    """Four heads of 33 splits and one head of 132 need as many bytes, and count differently in them."""
    first, again, other = (device.workspace(library(512), CPU, *shape) for shape in ((1, 132), (1, 132), (4, 33)))
    assert first.data_ptr() == again.data_ptr() != other.data_ptr()
    assert first.numel() == 512 and not first.any()


def test_a_capture_has_its_own_and_makes_none(capturing):
    eager = device.workspace(library(64), CPU, 1)
    capturing.now = True
    assert device.workspace(library(64), CPU, 1).data_ptr() != eager.data_ptr()
    with pytest.raises(AssertionError, match="run once before a capture"):
        device.workspace(library(64), CPU, 2)


def test_a_library_that_wants_nothing_is_a_mistake(capturing):
    with pytest.raises(AssertionError, match="wants a workspace of 0 bytes"):
        device.workspace(library(0), CPU, 1)

"""What a native CUDA schedule asks of its device: how many multiprocessors, which stream, and scratch memory.

Scratch memory is made once, zero before its first use, never inside a graph capture; two for each key: one for eager
launches, one for captured graphs, so that replaying a graph beside eager work is safe. Runs of one schedule on one
device must follow one another: either all on one stream, or one graph at a time.
"""

from __future__ import annotations

from ctypes import c_int
from functools import cache
from typing import TYPE_CHECKING

from kernels.native.library import NativeLibrary

if TYPE_CHECKING:
    import torch

_made: dict[tuple[str, int | None, int], tuple[torch.Tensor, torch.Tensor]] = {}


@cache
def multiprocessors(index: int | None) -> int:
    import torch  # only a schedule that runs on the device comes here

    return torch.cuda.get_device_properties(index if index is not None else "cuda").multi_processor_count


def stream_of(tensor: torch.Tensor) -> int:
    """The current stream of the tensor's device, as a C interface takes it."""
    import torch

    return torch.cuda.current_stream(tensor.device).cuda_stream


def workspace(library: NativeLibrary, device: torch.device, *shape: int) -> torch.Tensor:
    """Scratch bytes on `device`, as many as the library's `workspace_bytes` wants for `shape`.

    Every shape has its own, even where sizes agree: counters of one mean nothing to another.
    """
    size_bytes = library.entry("workspace_bytes", (c_int,) * len(shape))(*shape)
    assert size_bytes > 0, f"{library.name} wants a workspace of {size_bytes} bytes for {shape}"
    return scratch(f"{library.sha256} {shape}", device, size_bytes)


def scratch(owner: str, device: torch.device, size_bytes: int) -> torch.Tensor:
    """uint8 [size_bytes], zero when it was made; the same one for the same owner, device and size."""
    import torch

    key, capturing = (owner, device.index, size_bytes), torch.cuda.is_current_stream_capturing()
    if key not in _made:
        assert not capturing, f"{size_bytes} bytes of scratch do not exist yet: run once before a capture"
        pair = [torch.zeros(size_bytes, dtype=torch.uint8, device=device) for _ in range(2)]
        _made[key] = (pair[0], pair[1])
    return _made[key][capturing]

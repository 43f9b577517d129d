"""Publication on Hopper: rows go straight into the other GPUs' memory, and sum, residual and norm are one launch.

`csrc/publication/peers.cu` has the protocol. A launch stands where a norm stands on one rank. The memory is this
library's own allocation, which the other processes map through CUDA's IPC handles; NVLink multicast is not used.
"""

from __future__ import annotations

from ctypes import byref, c_char, c_float, c_int, c_int64, c_uint64, c_void_p
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernels.beside import PIECE, TYPES, build, piecewise, schedule, type_of
from kernels.native.device import stream_of
from kernels.native.library import NativeLibrary, call, native
from kernels.native.machine import cuda_arch
from kernels.publication.gathered import Norm, Project, by_torch
from kernels.publication.problem import Problem
from kernels.publication.ranks import MAX_RANKS, MAX_ROWS, MAX_WIDTH, ROW_VALUES, SLOTS, Mail, Ranks
from kernels.registry import Bitwise, Refusal, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight

HANDLE_BYTES = 64
ENTRY = (*(c_void_p,) * 8, *(c_int,) * 4, c_int64, c_int, c_float, c_int64, c_int, c_void_p)


def guard(problem: Problem) -> Refusal | None:
    stride = problem.row_stride or problem.width
    return first_refusal(
        (
            refuse_unless(not problem.apart, problem.apart),
            refuse_unless(2 <= problem.ranks <= MAX_RANKS, f"{problem.ranks} ranks; 2 to {MAX_RANKS}"),
            refuse_unless(problem.dtype in TYPES, f"the residual is {problem.dtype}; one of {', '.join(TYPES)}"),
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
            refuse_unless(problem.width <= MAX_WIDTH, f"rows of {problem.width}; at most {MAX_WIDTH}"),
            refuse_unless(problem.width % PIECE == 0, f"rows of {problem.width}; a multiple of {PIECE}"),
            refuse_unless(stride % PIECE == 0, f"rows of the residual {stride} apart; a multiple of {PIECE}"),
        )
    )


def library_of(device: torch.device) -> NativeLibrary:
    return native(BUILD, cuda_arch(device.index))


def inbox_bytes(size: int) -> int:
    return SLOTS * size * ROW_VALUES * 8


def made_inbox(size: int, device: torch.device) -> tuple[int, bytes]:
    """The address of an inbox on `device`, and what others map it by. It lives as long as the process."""
    import torch

    library, address, handle = library_of(device), c_void_p(), (c_char * HANDLE_BYTES)()
    with torch.cuda.device(device):
        entry = library.entry("allocate", (c_int64, c_void_p, c_void_p))
        call(entry, inbox_bytes(size), byref(address), handle)
    assert address.value is not None
    return address.value, bytes(handle)


def local(inboxes: tuple[int, ...], device: torch.device, keep: Any = None) -> Mail:
    """A rank's end of inboxes at these addresses."""
    import torch

    fault = torch.zeros(2, dtype=torch.int32).pin_memory()
    return Mail(inboxes, torch.zeros(4, dtype=torch.int32, device=device), fault, keep)


def connect(ranks: Ranks, device: torch.device) -> Mail:
    """Every rank makes its inbox and maps the others'."""
    import torch

    assert not torch.cuda.is_current_stream_capturing(), "ranks connect before a capture"
    own, handle = made_inbox(ranks.size, device)
    handles = ranks.gather(torch.tensor([*handle], dtype=torch.uint8, device=device))
    addresses = [
        own if rank == ranks.rank else _mapped(bytes(told.tolist()), device) for rank, told in enumerate(handles)
    ]
    return local(tuple(addresses), device)


def _mapped(handle: bytes, device: torch.device) -> int:
    import torch

    address = c_void_p()
    with torch.cuda.device(device):
        call(library_of(device).entry("attach", (c_void_p, c_void_p)), (c_char * HANDLE_BYTES)(*handle), byref(address))
    assert address.value is not None
    return address.value


def exchange(
    rows: torch.Tensor,
    dtype: torch.dtype,
    residual: torch.Tensor | None,
    scale: torch.Tensor | None,
    eps: float,
    ranks: Ranks,
    collect: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`s` and `y` of every rank's FP32 partial `rows`; without `collect` the rows are only sent."""
    rows = rows.contiguous()
    order = ordered(rows.new_empty(rows.shape, dtype=dtype), residual, scale, eps, ranks)
    entry = library_of(rows.device).entry("run", ENTRY)
    call(entry, rows.data_ptr(), *order.pointers, *order.numbers, int(collect), stream_of(rows))
    return order.s, order.y


@dataclass(frozen=True, eq=False)
class Order:
    """What a publication makes, `s` and `y`, and how an entry is told: pointers, then numbers."""

    s: torch.Tensor
    y: torch.Tensor
    pointers: tuple[Any, ...]
    numbers: tuple[Any, ...]


def ordered(
    s: torch.Tensor, residual: torch.Tensor | None, scale: torch.Tensor | None, eps: float, ranks: Ranks
) -> Order:
    """The order to publish into `s` [M, N]; the first one connects the ranks."""
    if ranks.mail is None:
        ranks.mail = connect(ranks, s.device)
    mail, residual = ranks.mail, None if residual is None else piecewise(residual)
    y = s if scale is None else s.new_empty(s.shape)
    given = tuple(0 if x is None else x.data_ptr() for x in (residual, scale))
    inboxes = (c_uint64 * ranks.size)(*mail.inboxes)
    pointers = (*given, s.data_ptr(), y.data_ptr(), inboxes, mail.state.data_ptr(), mail.fault.data_ptr())
    shape = (ranks.rank, ranks.size, *s.shape, 0 if residual is None else residual.stride(0), type_of(s))
    return Order(s, y, pointers, (*shape, eps, int(ranks.limit_s * 1e9)))


def run(
    x: torch.Tensor,
    weight: Weight,
    residual: torch.Tensor | None,
    scale: torch.Tensor | None,
    eps: float,
    ranks: Ranks,
    project: Project = by_torch,
    norm: Norm | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    return exchange(project(x, weight), x.dtype, residual, scale, eps, ranks)


BUILD = build("publication", "peers")
SCHEDULE = replace(
    schedule(BUILD, guard, run, ""),
    contract=Bitwise(parent="gathered"),
    summary="Hopper, rows into the other GPUs' memory; sum, residual and norm in one launch",
)

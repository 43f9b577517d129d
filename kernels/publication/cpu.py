"""Publication on the CPU through memory that the ranks share; `csrc/publication/shared.cpp` has the protocol.

The protocol is the one of the CUDA schedule but for how arrival is told (a flag per rank instead of one per value), so
that processes without a GPU can show it. Projection and norm stay the caller's.
"""

from __future__ import annotations

from ctypes import c_int, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.errors import RankLost
from kernels.native.library import native
from kernels.native.machine import X86_64_V3, cpu_arch
from kernels.native.specification import BuildSpec
from kernels.publication.gathered import Norm, Project, by_torch, with_norm
from kernels.publication.problem import Problem
from kernels.publication.ranks import MAX_RANKS, MAX_ROWS, MAX_WIDTH, ROW_VALUES, SLOTS, Mail, Ranks
from kernels.registry import Bitwise, Refusal, Schedule, first_refusal, refuse_unless

if TYPE_CHECKING:
    import torch

    from kernels.projection.weights import Weight

FLAG_BYTES = 64 * SLOTS * MAX_RANKS  # a cache line each
ENTRY = (*(c_void_p,) * 5, *(c_int,) * 4, c_int64, c_int)


def guard(problem: Problem) -> Refusal | None:
    return first_refusal(
        (
            refuse_unless(not problem.apart, problem.apart),
            refuse_unless(2 <= problem.ranks <= MAX_RANKS, f"{problem.ranks} ranks; 2 to {MAX_RANKS}"),
            refuse_unless(1 <= problem.rows <= MAX_ROWS, f"{problem.rows} rows; 1 to {MAX_ROWS}"),
            refuse_unless(problem.width <= MAX_WIDTH, f"rows of {problem.width}; at most {MAX_WIDTH}"),
        )
    )


def inbox_bytes(size: int) -> int:
    return FLAG_BYTES + SLOTS * size * ROW_VALUES * 4


def local(inboxes: list[torch.Tensor]) -> Mail:
    """A rank's end of these inboxes, uint8 tensors in rank order."""
    import torch

    state, fault = torch.zeros(4, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    return Mail(tuple(inbox.data_ptr() for inbox in inboxes), state, fault, inboxes)


def connect(ranks: Ranks) -> Mail:
    """Every rank makes its inbox, a file beside `ranks.place`; then each maps all. The files are gone at once."""
    import torch

    paths = [Path(f"{ranks.place}-inbox-{rank}") for rank in range(ranks.size)]
    with paths[ranks.rank].open("wb") as file:
        file.truncate(inbox_bytes(ranks.size))
    ranks.gather(torch.zeros(1))  # all are there
    size = inbox_bytes(ranks.size)
    inboxes = [torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8) for path in paths]
    ranks.gather(torch.zeros(1))  # all have mapped all
    paths[ranks.rank].unlink()
    return local(inboxes)


def exchange(partial_rows: torch.Tensor, ranks: Ranks, collect: bool = True) -> torch.Tensor:
    """Every rank's FP32 partial rows [M, N] added in rank order; without `collect` they are only sent."""
    if ranks.mail is None:
        ranks.mail = connect(ranks)
    mail, rows = ranks.mail, partial_rows.contiguous()
    total = rows.new_empty(rows.shape)
    inboxes = (c_uint64 * ranks.size)(*mail.inboxes)
    pointers = (rows.data_ptr(), total.data_ptr(), inboxes, mail.state.data_ptr(), mail.fault.data_ptr())
    numbers = (ranks.rank, ranks.size, *rows.shape, int(ranks.limit_s * 1e9), int(collect))
    if native(BUILD, cpu_arch()).entry("run", ENTRY)(*pointers, *numbers):
        raise RankLost(ranks.lost())
    return total


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
    product = exchange(project(x, weight), ranks).to(x.dtype)
    return with_norm(product, residual, scale, eps, norm)


BUILD = BuildSpec(
    operator="publication",
    schedule="cpu-shared",
    revision=1,
    language="c++",
    sources=("publication/shared.cpp",),
)
SCHEDULE = Schedule(
    name="cpu-shared",
    revision=1,
    contract=Bitwise(parent="gathered"),
    guard=guard,
    run=run,
    machine=X86_64_V3,
    build=BUILD,
    summary="C++, partial rows through memory that the processes share",
)

"""Publication problems in one process: the other ranks send what they have, then the rank under test publishes.

Every other rank is a real end of the protocol with its own epochs, but it only sends; what it got is looked at. Ranks
that run at the same time, late ones and lost ones are in `tests/kernels/test_publication.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Timer
from typing import Any

import torch

from kernels import projection
from kernels.checking import mapped
from kernels.checking.cases.norm import EPS
from kernels.checking.cases.projection import weight_of
from kernels.checking.cases.trial import Case, Draw, Outputs, Trial
from kernels.checking.compare import inside_poison, rel_l2
from kernels.errors import RankLost
from kernels.projection import Weight, dense
from kernels.publication import OP, Ranks, cpu, cuda, gathered, problem_of
from kernels.publication.ranks import MAX_ROWS, MAX_WIDTH, SLOTS
from kernels.registry import Schedule

# Loud rows leave little of FP16's range.
STATES = {"live": 1.0, "changed": -3.0, "zeros": 0.0, "loud": 300.0, "restored": 1.0}
LATE_CYCLES = 1_000_000  # half a millisecond and more


class PublicationTrial(Trial):
    states = tuple(STATES)

    def __init__(
        self, rows: int, width: int, k: int, place: tuple[int, int], dtype: str, form: str, bare: bool, device: str
    ) -> None:
        self.rank, size = place
        draw, kind = Draw(rows * 1_000_003 + width * 1_009 + k, device), getattr(torch, dtype)
        self.values = [draw.normal(rows, k, dtype=kind) for _ in range(size)]
        self.weights = [weight_of(draw, width, k, form or dtype) for _ in range(size)]
        self.project = streamed if form == "nvfp4" else gathered.by_torch
        self.xs = [inside_poison(values) for values in self.values]
        self.stream = draw.normal(rows, width, dtype=kind)
        self.residual = None if bare else inside_poison(self.stream, 4)
        self.scale = None if bare else inside_poison(1 + draw.normal(width, scale=0.1))
        self.shares = [dense.run(x, weight, wide=True) for x, weight in zip(self.values, self.weights, strict=True)]
        self.sent = [share.clone() for share in self.shares]
        self.group = [Ranks(rank, size, self._gather) for rank in range(size)]
        self.own, self.sends = self.group[self.rank], False
        self.problem = problem_of(self.xs[self.rank], self.weights[self.rank], self.residual, self.own)
        self._wire(size, device)

    def _wire(self, size: int, device: str) -> None:
        on = torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device(device)
        room = cuda.inbox_bytes(size) if device == "cuda" else cpu.inbox_bytes(size)
        inboxes = [inside_poison(torch.zeros(room, dtype=torch.uint8, device=on)) for _ in range(size)]
        for ranks in self.group:
            addresses = tuple(inbox.data_ptr() for inbox in inboxes)
            ranks.mail = cuda.local(addresses, on, inboxes) if device == "cuda" else cpu.local(inboxes)

    def _gather(self, own: torch.Tensor) -> list[torch.Tensor]:
        return [own if rank == self.rank else share for rank, share in enumerate(self.sent)]

    def set_state(self, state: str) -> None:
        for x, values, sent, share in zip(self.xs, self.values, self.sent, self.shares, strict=True):
            x.copy_(values * STATES[state])
            sent.copy_(share * STATES[state])
        if self.residual is not None:
            self.residual.copy_(self.stream * min(STATES[state], 30.0))

    def launch(self, schedule: Schedule) -> tuple[torch.Tensor, torch.Tensor]:
        for ranks in self.others() if schedule.build else ():
            self._send(ranks)
        operands = (self.xs[self.rank], self.weights[self.rank], self.residual, self.scale, EPS, self.own)
        return schedule.run(*operands, self.project)

    def others(self) -> list[Ranks]:
        return [ranks for ranks in self.group if ranks is not self.own]

    def _send(self, ranks: Ranks, by: float = 1.0) -> None:
        self._send_rows(ranks, self.sent[ranks.rank] * by)

    def _send_rows(self, ranks: Ranks, sent: torch.Tensor) -> None:
        if self.device == "cuda":
            cuda.exchange(sent, self.stream.dtype, self.residual, self.scale, EPS, ranks, collect=False)
        else:
            cpu.exchange(sent, ranks, collect=False)

    def run(self, schedule: Schedule) -> Outputs:
        self.sends = schedule.build is not None
        return dict(zip(("s", "y"), self.launch(schedule), strict=True))

    def untouched(self, outputs: Outputs) -> str | None:
        """Which rank's inbox lacks the rows of this one; between GPUs only, whose layout is written down."""
        mail, share = self.own.mail, self.sent[self.rank]
        if self.device != "cuda" or not self.sends:
            return None
        assert mail is not None
        epoch, (rows, width) = int(mail.state[0]), share.shape
        for ranks in self.others():
            inbox = mail.keep[ranks.rank].view(torch.int64).view(SLOTS, len(self.group), MAX_ROWS, MAX_WIDTH)
            words = inbox[epoch % SLOTS, self.rank, :rows, :width]
            if not bool((words >> 32 == epoch).all()):
                return f"rank {ranks.rank} did not get all rows of publication {epoch}"
            if not rel_l2(words.int().view(torch.float32), share) < 1e-2:  # x is scaled in 16 bits
                return f"rank {ranks.rank} got other rows than were sent in publication {epoch}"
        return None

    def expected(self) -> Outputs:
        shares = list(zip(self.xs, self.weights, strict=True))
        return dict(zip(("s", "y"), OP.reference(shares, self.residual, self.scale, EPS), strict=True))


def streamed(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """FP32 rows by the streamed projection, whose bytes a schedule that projects by itself has."""
    return projection.OP.schedule("nvfp4-stream-exchange").run(x, weight, True)


class AheadTrial(PublicationTrial):
    """The others have sent what comes next, too, which must not stand where this rank still reads."""

    def launch(self, schedule: Schedule) -> tuple[torch.Tensor, torch.Tensor]:
        if not schedule.build:
            return super().launch(schedule)
        for by in (1.0, -7.0):
            for ranks in self.others():
                self._send(ranks, by)
        operands = (self.xs[self.rank], self.weights[self.rank], self.residual, self.scale, EPS, self.own, self.project)
        s, y = schedule.run(*operands)
        schedule.run(*operands)
        return s, y


class LateTrial(PublicationTrial):
    """The others send while this rank waits: on a GPU from another stream, on the CPU from another thread."""

    def launch(self, schedule: Schedule) -> tuple[torch.Tensor, torch.Tensor]:
        if not schedule.build:
            return super().launch(schedule)
        waits, (group, self.group) = self._later(self.others()), (self.group, [self.own])
        try:
            return super().launch(schedule)
        finally:
            self.group = group
            waits()

    def _later(self, others: list[Ranks]) -> Callable[[], None]:
        """Begins to send, and gives what waits until they have."""
        if self.device == "cpu":  # a call leaves the interpreter to them
            sending = Timer(0.003, lambda: [self._send(ranks) for ranks in others])
            sending.start()
            return sending.join
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        rows = [self.sent[ranks.rank].clone() for ranks in others]  # as they are now
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            torch.cuda._sleep(LATE_CYCLES)
            for ranks, sent in zip(others, rows, strict=True):
                self._send_rows(ranks, sent)

        def wait() -> None:
            here.wait_stream(beside)
            rows.clear()

        return wait


class MappedTrial(PublicationTrial):
    """The inbox is memory that the library makes for other processes, and one of them looks at it."""

    states = ("live", "changed", "restored")

    def _wire(self, size: int, device: str) -> None:
        super()._wire(size, device)
        on = torch.device(device, torch.cuda.current_device())
        self.made, self.handle = cuda.made_inbox(size, on)
        for ranks in self.group:
            assert ranks.mail is not None
            inboxes = [self.made if at == self.rank else inbox for at, inbox in enumerate(ranks.mail.inboxes)]
            ranks.mail = replace(ranks.mail, inboxes=tuple(inboxes))

    def untouched(self, outputs: Outputs) -> str | None:
        library, size = cuda.library_of(self.stream.device), cuda.inbox_bytes(len(self.group))
        torch.cuda.synchronize()
        other = mapped.difference(library.path, f"{library.name}_attach", self.handle, self.made, size)
        return super().untouched(outputs) or (other if self.sends else None)


class LostTrial(PublicationTrial):
    """A rank that sends twice and never again: the outputs are NaN, and the host is told who is missing since when."""

    states = ("live", "changed", "restored")

    def __init__(self, *shape: Any) -> None:
        super().__init__(*shape)
        self.lost, self.turning = (self.rank + 1) % len(self.group), False
        self.own.limit_s = 0.01

    def set_state(self, state: str) -> None:
        super().set_state(state)
        self.turning = state == "changed"

    def run(self, schedule: Schedule) -> Outputs:
        self.waits = schedule.build is not None  # the group's own library has its own way of saying so
        if not self.waits:
            return self.expected()
        for ranks in self.group:
            assert ranks.mail is not None
            for memory in (*ranks.mail.keep, ranks.mail.state, ranks.mail.fault):
                memory.zero_()
        for _ in range(2):
            self.launch(schedule)
        if self.turning and self.device == "cpu":  # of the clock: it must go on where its nanoseconds begin again
            time.sleep((1 - self.own.limit_s / 2 - time.monotonic()) % 1)
        sending, self.group = self.group, [ranks for ranks in self.group if ranks.rank != self.lost]
        try:
            s, y = self.launch(schedule)
        except RankLost:
            return self.expected()
        finally:
            self.group = sending
        return {"s": s.isnan().float(), "y": y.isnan().float()}

    def expected(self) -> Outputs:
        return {name: torch.ones(self.stream.shape, device=self.device) for name in ("s", "y")}

    def untouched(self, outputs: Outputs) -> str | None:
        mail = self.own.mail
        if not self.waits:
            return None
        assert mail is not None
        if self.device == "cuda":
            torch.cuda.synchronize()
        lost, epoch = mail.fault.tolist()
        return None if (lost - 1, epoch) == (self.lost, 3) else f"rank {lost - 1} is called lost in publication {epoch}"


def case(
    rows: int, width: int, k: int, place: tuple[int, int], dtype: str = "float32", form: str = "", bare: bool = False,
    device: str = "cpu", made: type[PublicationTrial] = PublicationTrial,
) -> Case:  # fmt: skip
    """`place` is the rank under test and the number of ranks, `form` that of the weights if it is not `dtype`."""
    name = f"r{rows}-w{width}-k{k}-rank{place[0]}of{place[1]}-{dtype}{form and '-' + form}" + ("-bare" if bare else "")
    name += {AheadTrial: "-ahead", LateTrial: "-late", LostTrial: "-lost", MappedTrial: "-mapped"}.get(made, "")
    return Case(name, partial(made, rows, width, k, place, dtype, form, bare), device)


CPU = (
    *(case(rows, 48, 32, (rows % 2, 2)) for rows in range(1, 9)),
    case(8, 101, 20, (1, 3), "float16"),
    case(5, 1024, 64, (3, 4), "bfloat16"),
    case(2, 37, 8, (7, 8)),
    case(7, 48, 32, (1, 2), "float16", bare=True),
    case(8, 8192, 8, (0, 2)),  # all of an inbox
    case(3, 48, 32, (1, 3), made=AheadTrial),
    case(3, 48, 32, (1, 3), made=LateTrial),
    case(3, 48, 32, (1, 3), made=LostTrial),
)
CUDA = (
    *(case(rows, 5120, 256, (rows % 2, 2), "float16", device="cuda") for rows in range(1, 9)),
    case(8, 5120, 256, (2, 4), "bfloat16", device="cuda"),
    case(8, 5120, 3072, (0, 2), "float16", device="cuda"),
    case(7, 1096, 64, (1, 3), "float16", device="cuda"),
    case(8, 128, 64, (4, 8), "float16", device="cuda"),
    case(3, 8192, 64, (1, 2), "float16", device="cuda"),
    case(7, 5120, 512, (1, 2), "float16", bare=True, device="cuda"),
    case(8, 5120, 3072, (0, 2), "float16", "nvfp4", device="cuda"),
    case(8, 5120, 8704, (1, 2), "float16", "nvfp4", device="cuda"),
    case(7, 544, 1024, (2, 3), "float16", "nvfp4", device="cuda"),
    case(1, 5120, 1024, (0, 2), "float16", "nvfp4", bare=True, device="cuda"),
    case(2, 7680, 64, (1, 2), "float16", device="cuda"),  # three pieces a thread
    case(2, 128, 64, (1, 3), "float16", device="cuda", made=LostTrial),
    case(1, 4, 64, (0, 2), "float16", device="cuda", made=LostTrial),  # by one thread
    case(3, 128, 64, (1, 3), "float16", device="cuda", made=AheadTrial),
    case(3, 128, 64, (1, 3), "float16", device="cuda", made=LateTrial),
    case(7, 544, 1024, (1, 3), "float16", "nvfp4", device="cuda", made=LateTrial),
    case(7, 544, 1024, (1, 3), "float16", "nvfp4", device="cuda"),
    case(2, 128, 64, (0, 2), "float16", device="cuda", made=MappedTrial),
)
CASES = CPU + CUDA
SANITIZED = (CUDA[0], CUDA[7], CUDA[10], CUDA[12], CUDA[13], CUDA[16])
HAMMERED = (CUDA[7], CUDA[8], CUDA[10], CUDA[13], *CUDA[14:17])
# The launch of the rank under test and the others' sends on one device; between GPUs: `benchmarks/publication.py`.
WORKING_SETS = {"cpu": ((CPU[9], 16),), "cuda": ((CUDA[9], 16),)}

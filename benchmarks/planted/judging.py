"""What a judge does: it loads planted libraries one after the other and runs the contract until a check fails.

On a GPU a judge stays, for a context costs seconds; on the CPU each turn has a process of its own. A kill counts where
the sources as they are pass the same check in the same process, loaded in the same way: else it was the judge. They
come after the mutant, but before it where another judge has failed them, for the mutant may have broken that one. The
first turn ends at a problem's end after `TURN_S`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

from kernels.native import building as native_building
from planted import building
from planted.sources import of_device

TURN_S = {"cpu": 20.0, "cuda": 3.0}
STAYS = {"cuda"}  # devices whose judges do
_PR_SET_PDEATHSIG = 1
AS_IS = "as-it-is"
READY = "nothing"  # seen yet


@dataclass(frozen=True)
class Job:
    """One mutant from its `start`-th problem on; the sources as they are where `id` is AS_IS."""

    group: str
    id: str
    file: str
    start: int = 0
    spent_s: float = 0.0
    fouls: int = 0
    turns: int = 0
    schedule: str = ""  # of the sources as they are

    @property
    def name(self) -> str:
        return self.schedule or self.id


@dataclass(frozen=True)
class Verdict:
    """`killed`, `survived`, `cut` after `seen` of `problems`, `stillborn`, or `foul`: no judge could tell."""

    group: str
    device: str
    id: str
    outcome: str
    said: str
    seen: int
    problems: int
    seconds: float


@dataclass(frozen=True)
class Problem:
    """A case of a schedule that compiles what was changed."""

    op: Any
    schedule: Any
    case: Any

    @property
    def name(self) -> str:
        return f"{self.op.name}/{self.schedule.name} {self.case.id}"


def problems_of(job: Job, device: str) -> list[Problem]:
    from kernels.checking.cases import cases_of
    from kernels.operators import OPERATORS

    found = []
    for op in OPERATORS:
        for schedule in op.schedules:
            build = schedule.build
            if build is None or not of_device(build, device):
                continue
            asked = (
                job.schedule == f"{op.name}/{schedule.name}"
                if job.schedule
                else job.file in (*build.sources, *build.headers)
            )
            if asked:
                found += [Problem(op, schedule, case) for case in cases_of(op, device)]
    return found


class Bench:
    """Inside a judge: the libraries of one mutant in place of the unchanged ones."""

    def __init__(self, folder: Path, device: str, send: Any) -> None:
        from kernels.native import library

        self.folder, self.device, self.send, self.library = folder, device, send, library
        self.load = library.load
        self.mutant = AS_IS
        mock.patch.object(library, "load", self.planted).start()

    def take(self, mutant: str) -> None:
        """A mutant's id, or AS_IS."""
        self.mutant = mutant
        self.library.native.cache_clear()

    def planted(self, spec: Any, arch: str, *root: Any) -> Any:
        """What `library.load` gives: the unchanged libraries by the same way, so that an error of it is seen there."""
        body = building.body_of(spec)
        path = building.place(self.folder, self.mutant, spec)
        if not path.exists():
            self.load(body, arch, *root)  # for its checks
            path = native_building.library_path(body, arch)
        handle = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        owner = f"{self.mutant} {spec.name}"
        return self.library.NativeLibrary(body.name, path, owner, spec.revision, arch, handle)

    def failure(self, problem: Problem) -> str | None:
        """The first check that fails, if one does."""
        from kernels import gate

        self.send(("at", problem.name))
        subject = gate.subject_of(problem.op, problem.schedule, self.device)
        for line in gate.lines_of(subject, "contract", problem.case, 0):
            self.send(("at", f"{problem.name} {line.check}"))
            if line.status != "passed":
                return f"{problem.name} {line.check}: {line.message}"
        return None

    def broken(self) -> bool:
        """Whether the context takes no more launches."""
        if self.device != "cuda":
            return False
        import torch

        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False

    def turn(self, job: Job) -> tuple[Any, ...]:
        """(`killed`, said, whether to go on), (`foul`, said), (`survived`,), (`needs`, file, …) or (`more`, next)."""
        began, problems = time.monotonic(), problems_of(job, self.device)
        for index in range(job.start, len(problems)):
            problem = problems[index]
            if job.id != AS_IS:
                state = building.state_of(self.folder, job.id, problem.schedule.build)
                if state is None:
                    return "needs", building.body_of(problem.schedule.build).name, index, len(problems)
                if state == building.IDENTICAL:
                    continue
            if job.turns == 0 and index > job.start and time.monotonic() - began > TURN_S[self.device]:
                return "more", "", index, len(problems)
            if job.fouls and job.id != AS_IS:
                self.take(AS_IS)
                if (told := self.failure(problem)) is not None:
                    return "foul", told, index, len(problems)
            self.take(job.id)
            said = self.failure(problem)
            if said is not None:
                return self.confirmed(problem, said, index, len(problems), job)
        return "survived", "", len(problems), len(problems)

    def confirmed(self, problem: Problem, said: str, index: int, count: int, job: Job) -> tuple[Any, ...]:
        """A failed check counts where the sources as they are pass it here and now."""
        if job.fouls or self.broken():
            return "broken", said, index + 1, count
        self.take(AS_IS)
        if "out of memory" in said:
            return "foul", said, index, count
        told = None if job.id == AS_IS or self.device not in STAYS else self.failure(problem)
        return ("killed", said, index + 1, count) if told is None else ("foul", told, index, count)


def serve(folder: Path, device: str, pipe: Connection, gpu: int) -> None:
    """A judge's life."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    faulthandler.disable()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    import torch

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    torch.set_num_threads(1)
    bench = Bench(folder, device, pipe.send)
    if device == "cuda":
        torch.zeros(1, device="cuda")
    pipe.send(("at", READY))
    while True:
        job = pipe.recv()
        try:
            found = bench.turn(job)
        except Exception as error:  # no check's: those are caught where they are run
            found = "foul", f"{type(error).__name__}: {error}", job.start, 0
        if device == "cuda" and found[0] != "broken" and torch.cuda.memory_reserved() > 4 << 30:
            torch.cuda.empty_cache()
        pipe.send(found)
        if found[0] in ("broken", "foul") or device not in STAYS:
            return

"""The processes that judge: who gets which mutant, who is replaced, and what is written down.

A judge is replaced where a launch broke its context, where nothing was heard for `HANG_S`, and where it failed the
sources as they are; what it had then is judged again. Who is undecided after a first turn comes again behind all
others, so that a run which is cut has seen something of every mutant. A verdict says how many problems were seen.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TextIO

from planted import building, judging
from planted.judging import Job, Verdict
from planted.sources import drawn

HANG_S = {"cpu": 60.0, "cuda": 15.0}
FRESH = 3  # judges that may fail the sources as they are before a mutant is given up
ASK_S = 2.0
START = "its start"


@dataclass
class Judge:
    """One process and what it has."""

    pipe: Connection
    process: Any
    job: Job | None = None
    began: float = 0.0
    heard: float = 0.0
    at: str = ""


@dataclass
class Court:
    """The queue, the judges and the compilers of what was not built beforehand."""

    folder: Path
    device: str
    out: TextIO
    queue: deque[Job]
    jobs: int
    compilers: int
    until: float
    more: Callable[[], list[Job] | None] = lambda: None  # what was built meanwhile; None: nobody builds
    gpus: int = 1
    hired: int = 0
    builds: bool = True
    looked: float = 0.0
    judges: list[Judge] = field(default_factory=list)
    building: dict[Future[str], Job] = field(default_factory=dict)
    undecided: dict[str, tuple[Job, int]] = field(default_factory=dict)

    def hire(self) -> Judge:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        gpu, self.hired = self.hired % self.gpus, self.hired + 1
        process = context.Process(target=judging.serve, args=(self.folder, self.device, theirs, gpu))
        process.start()
        theirs.close()
        return Judge(ours, process, heard=time.monotonic())

    def dismiss(self, judge: Judge) -> None:
        judge.process.kill()  # not waited for: the driver takes its time with a launch that never ends
        judge.pipe.close()
        self.judges.remove(judge)

    def run(self) -> None:
        """Until every job is decided or the time is up."""
        from kernels import gate  # so that no judge has to; nothing of it touches the device before the forks

        assert gate.OPERATORS
        with ThreadPoolExecutor(max(1, self.compilers)) as pool:
            while self.goes_on() and time.monotonic() < self.until:
                self.hand_out()
                self.listen(pool)
                self.collect()
            for future in self.building:
                future.cancel()
        for judge in [*self.judges]:
            self.dismiss(judge)
        for job, problems in self.undecided.values():
            self.note(job, "cut", "", job.start, problems)

    def goes_on(self) -> bool:
        """Whether there is anything to do, what others built meanwhile included; they are asked now and then."""
        if self.builds and time.monotonic() - self.looked > ASK_S:
            self.looked, new = time.monotonic(), self.more()
            self.builds = new is not None
            self.queue.extendleft(reversed(new or []))
        return bool(self.builds or self.queue or self.building or any(judge.job for judge in self.judges))

    def hand_out(self) -> None:
        while self.queue:
            idle = next((judge for judge in self.judges if judge.job is None), None)
            if idle is None and len(self.judges) < self.jobs:
                idle = self.hire()
                self.judges.append(idle)
            if idle is None:
                return
            idle.job = self.queue.popleft()
            idle.began = idle.heard = time.monotonic()
            idle.at = idle.at or START
            idle.pipe.send(idle.job)

    def listen(self, pool: ThreadPoolExecutor) -> None:
        busy = [judge for judge in self.judges if judge.job]
        if not busy:
            time.sleep(0.2)
        ready = wait([judge.pipe for judge in busy], timeout=0.2)
        for judge in (judge for judge in busy if judge.pipe in ready):
            try:
                self.heard(judge, judge.pipe.recv(), pool)
            except EOFError:
                judge.process.join()
                code = judge.process.exitcode or 0
                if code >= 0:
                    judge.at = START  # an error of the judge's own
                said = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                self.gone(judge, f"{said} after {judge.at}")
        for judge in [judge for judge in self.judges if judge.job]:
            if time.monotonic() - judge.heard > HANG_S[self.device]:
                self.gone(judge, f"nothing within {HANG_S[self.device]:.0f} s after {judge.at}")

    def gone(self, judge: Judge, said: str) -> None:
        job = judge.job
        assert job is not None
        self.dismiss(judge)
        job = replace(job, spent_s=job.spent_s + time.monotonic() - judge.began)
        if judge.at == START:
            self.again(job, said)
        else:
            self.decide(job, "killed", said, job.start, 0)

    def again(self, job: Job, said: str) -> None:
        """It was the judge: another one, up to `FRESH` times."""
        if job.fouls < FRESH:
            self.queue.append(replace(job, fouls=job.fouls + 1))
        else:
            self.decide(job, "foul", said, job.start, 0)

    def heard(self, judge: Judge, message: tuple[Any, ...], pool: ThreadPoolExecutor) -> None:
        judge.heard = time.monotonic()
        if message[0] == "at":
            judge.at = message[1]
            return
        kind, said, index, problems = message
        job = judge.job
        assert job is not None
        job, judge.job = replace(job, start=index, spent_s=job.spent_s + time.monotonic() - judge.began), None
        if kind in ("broken", "foul") or self.device not in judging.STAYS:
            self.dismiss(judge)
        if kind == "needs":
            self.undecided[job.name] = job, problems
            self.building[pool.submit(self.compiled, job, said)] = job
        elif kind == "more":
            self.undecided[job.name] = job, problems
            self.queue.append(replace(job, turns=1))
        elif kind == "foul":
            self.again(job, said)
        else:
            self.decide(job, "killed" if kind == "broken" else kind, said, index, problems)

    def compiled(self, job: Job, name: str) -> str:
        spec = next(spec for spec in building.specs_of(self.device) if spec.name == name)
        mutant = next(mutant for mutant in drawn([job.file]) if mutant.id == job.id)
        return building.build(self.folder, mutant, spec)

    def collect(self) -> None:
        for future in [future for future in self.building if future.done()]:
            job = self.building.pop(future)
            if future.result() == building.STILLBORN:
                self.decide(job, "stillborn", "one of the libraries does not compile", job.start, 0)
            else:
                self.queue.appendleft(job)

    def decide(self, job: Job, outcome: str, said: str, seen: int, problems: int) -> None:
        self.undecided.pop(job.name, None)
        self.note(job, outcome, said, seen, problems)

    def note(self, job: Job, outcome: str, said: str, seen: int, problems: int) -> None:
        line = Verdict(job.group, self.device, job.name, outcome, said[:300], seen, problems, round(job.spent_s, 2))
        print(json.dumps(asdict(line)), file=self.out, flush=True)


def verdicts_of(paths: Sequence[Path]) -> Iterator[Verdict]:
    """The lines of earlier runs, the later ones last."""
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else ():
            yield Verdict(**json.loads(line))

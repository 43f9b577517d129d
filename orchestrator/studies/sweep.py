"""Several campaigns of one command: one after the other, or side by side over the devices that are free; one table.

Side by side each campaign is a process of its own, with its output beside its log; all write to one store. Knows
prepared campaigns, nothing of how they were composed.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from campaigns.errors import CampaignError, Exit, UsageError
from campaigns.records import Campaign
from orchestrator.campaign import execute, resume
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.locks import LockFolder
from orchestrator.hosts.process import die_with_parent
from orchestrator.output.journal import keeping, outputs_folder
from orchestrator.output.progress import Output
from orchestrator.preparation.prepare import Prepared
from results.reading.summary import Summary, summarise
from results.reports.headline import headline
from results.reports.layout import lay_out
from results.reports.tables import cells
from results.store.reader import Reader
from results.store.writer import Store

CHILD = "--job-on-stdin"  # the words of a child's command line
_LOOK_S = 0.2
_HEADER = ("job", "campaign", "effect", "95 % interval", "verdict", "exact pairs", "exit")


@dataclass(frozen=True)
class Job:
    """`words` are what is swept: how a person tells it from the others."""

    words: str
    prepared: Prepared
    campaign: Campaign

    @property
    def folder(self) -> Path:
        return outputs_folder(self.prepared.store_path, self.campaign.campaign_id)


def run(jobs: Sequence[Job], at_once: int, output: Output) -> list[Exit]:
    """Every job's exit code; those that a person's end left out have none. The table goes to standard output."""
    width = min(at_once, *(_room(job) for job in jobs)) if jobs and at_once > 1 else 1
    codes = _in_turn(jobs, output) if width == 1 else _SideBySide(jobs, width, output.console()).run()
    told = lay_out("table", _HEADER, [_row(job, code) for job, code in zip(jobs, codes, strict=False)])
    print(told, end="", file=sys.stderr if output.format else sys.stdout)
    return codes


def check_room(prepared: Prepared, at_once: int) -> None:
    """Campaigns side by side on one host are neighbours like any startups."""
    lease = prepared.plan.lease
    if at_once * lease.parallel > lease.per_host and not lease.ray_address and at_once > 1:
        raise UsageError(
            f"sweep.parallel={at_once} with lease.parallel={lease.parallel}, and this host takes lease.per_host="
            f"{lease.per_host} startup at a time: set lease.per_host={at_once * lease.parallel}, or join a cluster"
        )


def _room(job: Job) -> int:
    """How many like it the free devices of this host hold now; a joined cluster finds places itself."""
    lease = job.prepared.plan.lease
    if lease.ray_address:
        return sys.maxsize
    folder = LockFolder(lease.lock_dir)
    with open_inventory(lease.inventory) as inventory:
        free = sum(not folder.is_held(device.uuid) for device in inventory.devices())
    return max(1, free // (lease.count * lease.parallel))


def perform(job: Job, output: Output) -> Exit:
    """From its beginning, or from where an earlier life of it ended."""
    if _stands(job):
        return resume(job.prepared.store_path, job.campaign.campaign_id, output, strict=job.prepared.strict)
    return execute(job.prepared, output, job.campaign)


def _stands(job: Job) -> bool:
    Store.open(job.prepared.store_path).close()  # another job may be just making it, and an empty file is no store
    with Reader.open(job.prepared.store_path) as reader:
        return job.campaign.campaign_id in {campaign.campaign_id for campaign in reader.campaigns()}


def _in_turn(jobs: Iterable[Job], output: Output) -> list[Exit]:
    codes: list[Exit] = []
    for job in jobs:
        try:
            codes.append(perform(job, output))
        except CampaignError as error:
            print(f"campaign: {error}", file=sys.stderr)
            codes.append(Exit(error.exit_code))
        if codes[-1] is Exit.INTERRUPTED:
            break  # a person ended this sweep
    return codes


def start(job: Job) -> subprocess.Popen[bytes]:
    """The job in a process of its own, which ends with this one; SIGINT interrupts it. Its output is in its folder."""
    with keeping(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        log = (job.folder / "console.log").open("ab")
    with log:
        child = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", "run", CHILD],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a terminal's Ctrl-C comes once, from here
        )
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin:  # a child that ended at once says why in its log
        pickle.dump(job, child.stdin)
    return child


class _SideBySide:
    def __init__(self, jobs: Sequence[Job], width: int, console: Console) -> None:
        self._jobs, self._width, self._console = jobs, width, console
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._codes: dict[int, Exit] = {}

    def run(self) -> list[Exit]:
        """In the order of the jobs, whoever ended first."""
        waiting = list(range(len(self._jobs)))
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self._width and Exit.INTERRUPTED not in self._codes.values():
                    self._begin(waiting.pop(0))
                self._collect()
                if Exit.INTERRUPTED in self._codes.values():
                    waiting.clear()
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            self._interrupt()
        return [code for _, code in sorted(self._codes.items())]

    def _begin(self, number: int) -> None:
        job = self._jobs[number]
        self._running[number] = start(job)
        self._say(f"{job.words}: campaign {job.campaign.campaign_id} began; its output is in {job.folder}/console.log")

    def _collect(self) -> None:
        for number, child in list(self._running.items()):
            if child.poll() is None:
                continue
            del self._running[number]
            self._codes[number] = _exit(child.returncode)
            job = self._jobs[number]
            code = int(self._codes[number])
            self._say(f"{job.words}: campaign {job.campaign.campaign_id} ended with {code}: {_answer(job)}")

    def _interrupt(self) -> None:
        """Each ends as if it had been interrupted itself, and can be resumed."""
        for child in self._running.values():
            child.send_signal(signal.SIGINT)
        while self._running:
            self._collect()
            time.sleep(_LOOK_S)
        self._codes.setdefault(len(self._jobs) - 1, Exit.INTERRUPTED)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _exit(code: int) -> Exit:
    """Of a child; one that was killed, or failed in a way that it has no code for, counts as a bug."""
    return Exit(code) if code in set(Exit) else Exit.BUG


def _answer(job: Job) -> str:
    found = summary_of(job)
    if found is not None:
        return found.status_reason or headline(found).sentence
    with suppress(OSError, IndexError):
        return (job.folder / "console.log").read_text(errors="replace").splitlines()[-1]
    return "it said nothing"


def summary_of(job: Job) -> Summary | None:
    """None for one that ended before it stood in the store."""
    try:
        with Reader.open(job.prepared.store_path) as reader:
            known = {campaign.campaign_id for campaign in reader.campaigns()}
            return summarise(reader, job.campaign.campaign_id) if job.campaign.campaign_id in known else None
    except CampaignError:
        return None


def _row(job: Job, code: Exit) -> tuple[str, ...]:
    found = summary_of(job)
    if found is None:
        return (job.words, job.campaign.campaign_id, *[cells.DASH] * 4, str(int(code)))
    judged = found.judgement
    exact = f"{found.n_exact_pairs}/{found.n_pairs} (E{int(found.required_exactness)})"
    figures = (cells.effect(judged.effect), cells.bounds(judged.interval), found.verdict.value, exact)
    return (job.words, job.campaign.campaign_id, *figures, str(int(code)))


def child() -> Exit:
    """One job, pickled on standard input by the process that runs the sweep, whose end is this one's too."""
    die_with_parent()
    job: Job = pickle.load(sys.stdin.buffer)  # noqa: S301  # from the process that started this one
    return perform(job, Output())

"""Whether one driver bears a fleet: its loop, threads, answers and store, with servers that sleep instead of computing.

    python benchmarks/fleet.py [--devices 64] [--startups 512] [--rounds 10000000] [--request-s 2.4] [--folder DIR]

Real: the loop, a startup's life with its checks, the unpickling of every answer, comparison, the store on disk with a
durable transaction per request. Not real: Ray, servers, devices. Ideal is the time that the
servers slept divided by the devices, as if the driver took no time. Prints a Markdown table of figures and limits.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import orchestrator.attempt
import orchestrator.loop
from campaigns.plan import Arm, Block, CampaignPlan, Fixture, LeasePlan, Phase, Role, ServerPlan, Step, blocks
from campaigns.records import CampaignStatus, Request, Startup, StartupEnd, StartupStatus
from orchestrator import loop
from orchestrator.journal import Journal
from orchestrator.life import Desk
from orchestrator.preparation.prepare import Prepared
from orchestrator.progress import View
from orchestrator.stopping import Stopping
from results.store.writer import Store
from results.transfer.synthetic import CREATED, Driver, Script, Trajectory

PAIRS, WARMUPS, FIXTURES, STARTUP_S = 4, 1, 2, 5.0
REQUESTS = FIXTURES * 2 * (PAIRS + WARMUPS)  # of a startup
MIN_EFFICIENCY, MAX_LAG_P99_S, MAX_GROWTH = 0.9, 1.0, 1.25


def plan(devices: int, startups: int) -> CampaignPlan:
    return CampaignPlan(
        name="fleet",
        control=Arm("a"),
        candidate=Arm("b", (("gdn", "bv2"),)),
        fixtures=tuple(Fixture(f"f{n}", "{}", (n,), max_tokens=16384) for n in range(FIXTURES)),
        server=ServerPlan("null"),
        startups=startups,
        pairs=PAIRS,
        warmups=WARMUPS,
        lease=LeasePlan(parallel=devices, per_host=8, ray_address="simulated"),
    )


@dataclass
class World:
    """What all startups share: the answer of each arm as bytes, and how long everything takes."""

    plan: CampaignPlan
    campaign_id: str
    answers: dict[Role, bytes]
    request_s: float
    slept_s: float = 0.0
    running: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        with self.lock:
            self.slept_s += seconds


class Handle:
    """A startup that answers as one on a node would: late, and in bytes."""

    def __init__(self, world: World, startup: int, attempt: int) -> None:
        self._world, self._startup, self._attempt, self._position = world, startup, attempt, 0
        self._chance = random.Random(startup)

    def start(self) -> Startup:
        self._world.sleep(STARTUP_S)
        device = f"GPU-{self._startup % self._world.plan.lease.parallel}"
        own = (self._world.campaign_id, self._startup, self._attempt, None, CREATED, "boot", f"host-{device}")
        return Startup(*own, (device,), (), 1_000_000_000, {}, {}, ())

    def token_ids(self, fixtures: Sequence[Fixture]) -> dict[str, Any]:
        return {fixture.id: None for fixture in fixtures}

    def capacity(self) -> int:
        return 32768

    def identity(self) -> dict[str, Any]:
        return {}

    def samples(self) -> list[Any]:
        return []

    def warm(self, block: Block, count: int, roles: Sequence[Role], budget: int, number: int) -> list[Request]:
        steps = [replace(block.steps[0], role=role) for _ in range(count) for role in roles]
        return [self._answer(step, number, Phase.WARMUP) for step in steps]

    def run(self, steps: Sequence[Step], budget: int, number: int) -> list[Request]:
        return [self._answer(step, number, Phase.MEASURE) for step in steps]

    def _answer(self, step: Step, number: int, phase: Phase) -> Request:
        self._world.sleep(self._world.request_s * self._chance.uniform(0.5, 1.5))  # answers differ, nobody marches
        self._position += 1
        request: Request = pickle.loads(self._world.answers[step.role])  # noqa: S301  # our own, a line above
        return replace(
            request,
            startup=self._startup,
            startup_attempt=self._attempt,
            key=step.key,
            block_attempt=number,
            phase=phase,
            position=self._position,
            order_in_pair=step.order_in_pair if phase is Phase.MEASURE else None,
        )

    def stop(self) -> StartupEnd:
        return StartupEnd(StartupStatus.COMPLETE, CREATED)


class TimedStore(Store):
    """Says how long a request waited until it was committed, the wait for the one writer included."""

    lags_s: list[float]

    def request(self, request: Request) -> None:
        began = time.perf_counter()
        super().request(request)
        self.lags_s.append(time.perf_counter() - began)


def world(store: Store, devices: int, startups: int, rounds: int, request_s: float) -> World:
    wanted = plan(devices, startups)
    per_request = max(2, rounds // (startups * REQUESTS))
    script = Script(Trajectory(4 * per_request, per_request, 3 * per_request - 1), 5.0, round_noise=0.02)
    driver = Driver(store, wanted, lambda step, attempt: script)
    campaign = driver.campaign()
    store.begin(campaign)
    step = {s.role: s for s in blocks(wanted, 0)[0].steps[:2]}
    answers = {role: pickle.dumps(driver.request(campaign.campaign_id, step[role], 1, 1)) for role in Role}
    return World(wanted, campaign.campaign_id, answers, request_s)


@contextmanager
def leased(made: World, startup: int, attempt: int) -> Iterator[Handle]:
    with made.lock:
        made.running += 1
        made.most = max(made.most, made.running)
    yield Handle(made, startup, attempt)
    with made.lock:
        made.running -= 1


def drive(store: Store, made: World, folder: Path) -> None:
    vars(orchestrator.loop)["connect"] = lambda lease, halted: nullcontext()
    orchestrator.attempt.StartupHandle.lease = lambda cluster, plan, campaign, startup, attempt, *_: leased(
        made, startup, attempt
    )
    campaign = Driver(store, made.plan, lambda step, attempt: Script(Trajectory(8, 2, 5), 5.0)).campaign()
    budgets = {fixture.id: 16384 for fixture in made.plan.fixtures}
    prepared = Prepared(made.plan, "{}", {}, {}, {}, {}, budgets, store.path, strict=False)
    with Journal(folder) as journal:
        desk = Desk(store, campaign, prepared, journal, View(Console(quiet=True), 1, ()))
        loop.run(desk, folder, Stopping(folder))
    store.status(made.campaign_id, CampaignStatus.COMPLETE)


@contextmanager
def memory(every_s: float = 1.0) -> Iterator[list[int]]:
    """Resident bytes of this process, once a second."""
    seen: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(every_s):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            seen.append(pages * os.sysconf("SC_PAGE_SIZE"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield seen
    ended.set()
    thread.join()


def measure(arguments: argparse.Namespace, folder: Path) -> list[tuple[str, str, str]]:
    """Rows of figure and limit."""
    with TimedStore.open(folder / "fleet.sqlite") as store:
        store.lags_s = []
        made = world(store, arguments.devices, arguments.startups, arguments.rounds, arguments.request_s)
        began, cpu = time.perf_counter(), time.process_time()
        with memory() as seen:
            drive(store, made, folder)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        pairs = len(store.recorded(made.campaign_id).pairs)
        lags = sorted(store.lags_s)
    assert pairs == arguments.startups * FIXTURES * PAIRS, pairs
    ideal_s = made.slept_s / arguments.devices
    early, late = seen[len(seen) // 4], max(seen[len(seen) // 2 :])
    rounds = max(2, arguments.rounds // (arguments.startups * REQUESTS)) * arguments.startups * REQUESTS
    return [
        ("startups, devices, most at once", f"{arguments.startups}, {arguments.devices}, {made.most}", ""),
        ("rounds", f"{rounds:,}", ""),
        ("wall time, ideal", f"{took_s:.0f} s, {ideal_s:.0f} s", ""),
        ("efficiency", f"{ideal_s / took_s:.3f}", f">= {MIN_EFFICIENCY}"),
        ("driver's CPU", f"{cpu_s:.0f} s, {100 * cpu_s / took_s:.0f} % of one", ""),
        ("writer's lag p50", f"{1e3 * _quantile(lags, 0.5):.1f} ms", ""),
        ("writer's lag p99", f"{1e3 * _quantile(lags, 0.99):.1f} ms", f"< {1e3 * MAX_LAG_P99_S:.0f} ms"),
        ("writer's lag, longest", f"{1e3 * lags[-1]:.1f} ms", ""),
        ("memory after a quarter, later", f"{early >> 20} MiB, {late >> 20} MiB", f"< x {MAX_GROWTH}"),
        ("store", f"{(folder / 'fleet.sqlite').stat().st_size >> 20} MiB", ""),
    ]


def _quantile(values: Sequence[float], q: float) -> float:
    return values[min(len(values) - 1, int(q * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--startups", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=10_000_000)
    parser.add_argument("--request-s", type=float, default=2.4)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fleet-", dir=arguments.folder))
    try:
        rows = measure(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("| figure | found | limit |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()

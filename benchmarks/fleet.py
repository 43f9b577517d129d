"""Whether one driver bears a fleet: its loop, threads, answers and store, with servers that sleep instead of computing.

    python benchmarks/fleet.py [--devices 64] [--startups 512] [--rounds 10000000] [--request-s 2.4] [--folder DIR]
    python benchmarks/fleet.py --nodes 8                                                     # over Ray; as root

Real: the loop, a startup's life with its checks, the unpickling of every answer, comparison, the store on disk with a
durable transaction per request; with --nodes also that many Ray nodes (namespaces of this machine), places, claims,
locks, an actor for each startup, and answers that come through Ray. Not real: servers, devices; without --nodes, Ray.
Ideal is the time that the servers sleep divided by the devices, as if all else took no time. Says every half minute how
far it is, and prints a Markdown table of figures and limits at the end, or when it is interrupted (ctrl-C).
"""

from __future__ import annotations

import argparse
import heapq
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

import orchestrator.attempt
import orchestrator.loop
from benchmarks import sleepers
from benchmarks.namespaces import Fleet, fleet, refusal
from benchmarks.sleepers import ANSWERS, CPU_S, FIXTURES, PAIRS, REQUESTS, STARTUP_S, WARMUPS, Sleeper
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, LeasePlan, Role, ServerPlan
from campaigns.records import CampaignStatus, Request
from orchestrator import loop
from orchestrator.life import Desk
from orchestrator.output.journal import Journal
from orchestrator.output.progress import View
from orchestrator.preparation.prepare import Prepared
from orchestrator.startups.startup import StartupHandle
from orchestrator.stopping import Stopping
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

MIN_EFFICIENCY, MAX_LAG_P99_S, MAX_GROWTH = 0.9, 1.0, 1.25
_SAY_S = 30


def plan(devices: int, startups: int, lease: LeasePlan) -> CampaignPlan:
    return CampaignPlan(
        name="fleet",
        control=Arm("a"),
        candidate=Arm("b", (("gdn", "bv2"),)),
        fixtures=tuple(Fixture(f"f{n}", "{}", (n,), max_tokens=16384) for n in range(FIXTURES)),
        server=ServerPlan("command", retries=5),
        startups=startups,
        pairs=PAIRS,
        warmups=WARMUPS,
        lease=replace(lease, parallel=devices),
    )


@dataclass
class World:
    """What all startups share, and how many run."""

    plan: CampaignPlan
    campaign_id: str
    answers: dict[Role, bytes]
    request_s: float
    rounds_of_request: int
    running: int = 0
    most: int = 0
    ended: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sleeper(self, startup: int, attempt: int = 1) -> Sleeper:
        device = f"GPU-{startup % self.plan.lease.parallel}"
        return Sleeper(self.campaign_id, startup, attempt, self.answers, self.request_s, (device,))

    def ideal_s(self) -> float:
        return sum(self._slept_s()) / self.plan.lease.parallel

    def in_order_s(self) -> float:
        """Each startup on the device that is free first: what is above `ideal_s` is the plan's uneven end."""
        free_s = [0.0] * self.plan.lease.parallel
        for slept_s in self._slept_s():
            heapq.heapreplace(free_s, free_s[0] + slept_s)
        return max(free_s)

    def _slept_s(self) -> list[float]:
        return [STARTUP_S + sum(self.sleeper(n).waits_s) for n in range(self.plan.startups)]

    @contextmanager
    def counted(self, handle: Any) -> Iterator[Any]:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            yield handle
        finally:
            handle.stop()
            with self.lock:
                self.running -= 1
                self.ended += 1


class TimedStore(Store):
    """Says how long a request waited until it was committed, the wait for the one writer included."""

    lags_s: list[float]

    def request(self, request: Request) -> None:
        began = time.perf_counter()
        super().request(request)
        self.lags_s.append(time.perf_counter() - began)


def world(store: Store, wanted: CampaignPlan, rounds: int, request_s: float) -> World:
    per_request = max(2, rounds // (wanted.startups * REQUESTS))
    script = Script(Trajectory(4 * per_request, per_request, 3 * per_request - 1), 5.0, round_noise=0.02)
    driver = Driver(store, wanted, lambda step, attempt: script)
    campaign = driver.campaign()
    store.begin(campaign)
    step = {s.role: s for s in blocks(wanted, 0)[0].steps[:2]}
    answers = {role: pickle.dumps(driver.request(campaign.campaign_id, step[role], 1, 1)) for role in Role}
    return World(wanted, campaign.campaign_id, answers, request_s, per_request)


def _travelling(lease: Callable[..., Any]) -> Callable[..., Any]:
    """With the sleepers: their folder is none that travels. Ray reads its settings when it is imported: not before."""

    def asked(*words: Any) -> Any:
        from ray import cloudpickle

        cloudpickle.register_pickle_by_value(sleepers)
        return lease(*words)

    return asked


def _sleeper(made: World, cluster: Any, plan: Any, campaign: Any, startup: int, attempt: int, *_: Any) -> Any:
    """A lease without a node."""
    return made.sleeper(startup, attempt)


def drive(store: Store, made: World, folder: Path) -> None:
    lease: Callable[..., Any] = StartupHandle.lease
    if made.plan.lease.ray_address:
        lease = _travelling(lease)
        StartupHandle.actor = sleepers.SleepingActor
        (folder / ANSWERS).write_bytes(pickle.dumps((made.request_s, made.answers)))
    else:
        vars(orchestrator.loop)["connect"] = lambda lease, halted: nullcontext()
        lease = partial(_sleeper, made)
    orchestrator.attempt.StartupHandle.lease = lambda *words: made.counted(lease(*words))
    campaign = Driver(store, made.plan, lambda step, attempt: Script(Trajectory(8, 2, 5), 5.0)).campaign()
    budgets = {fixture.id: 16384 for fixture in made.plan.fixtures}
    prepared = Prepared(made.plan, "{}", {}, {}, {}, {}, budgets, store.path, strict=False)
    with Journal(folder) as journal:
        desk = Desk(store, campaign, prepared, journal, View(Console(quiet=True), made.plan))
        loop.run(desk, folder, Stopping(folder))
    store.status(made.campaign_id, CampaignStatus.COMPLETE)


@dataclass
class Meter:
    """Looks at the run once a second, and says every half minute what it has found: to stderr, one line each time."""

    store: TimedStore
    made: World
    nodes: Fleet | None
    resident: list[int] = field(default_factory=list)  # bytes, once a second
    open_files: int = 0  # the most at once
    began_s: float = field(default_factory=time.perf_counter)
    cpu_s: float = field(default_factory=time.process_time)
    busy_s: float = field(default_factory=lambda: machine_s())

    @contextmanager
    def running(self) -> Iterator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(1.0):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.resident.append(pages * os.sysconf("SC_PAGE_SIZE"))
            self.open_files = max(self.open_files, len(list(Path("/proc/self/fd").iterdir())))
            if len(self.resident) % _SAY_S == 0:
                print(self.line(), file=sys.stderr, flush=True)

    @property
    def took_s(self) -> float:
        return time.perf_counter() - self.began_s

    def line(self) -> str:
        lags = sorted(self.store.lags_s) or [0.0]
        rounds = len(self.store.lags_s) * self.made.rounds_of_request
        return (
            f"{self.took_s:6.0f} s: {rounds:,} rounds, {self.made.ended} startups over, {self.made.running} running, "
            f"lag p50 {1e3 * _quantile(lags, 0.5):.1f} p99 {1e3 * _quantile(lags, 0.99):.0f} ms, driver "
            f"{self.resident[-1] >> 20} MiB, its CPU {time.process_time() - self.cpu_s:.0f} s, all CPUs "
            f"{self._busy():.0f} % busy"
        )

    def _busy(self) -> float:
        return 100 * (machine_s() - self.busy_s) / self.took_s / (os.cpu_count() or 1)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Of figure and limit."""
        made, took_s, cpu_s = self.made, self.took_s, time.process_time() - self.cpu_s
        lags, ideal_s, quarters = sorted(self.store.lags_s) or [0.0], made.ideal_s(), self._quarters()
        devices = made.plan.lease.parallel
        yield "startups, devices, most at once", f"{made.plan.startups}, {devices}, {made.most}", ""
        if self.nodes is not None:
            yield from _nodes(self.store.path.parent, made.campaign_id)
        yield "requests, rounds", f"{len(lags):,}, {len(lags) * made.rounds_of_request:,}", ""
        yield "wall time, ideal", f"{took_s:.0f} s, {ideal_s:.0f} s", ""
        yield "efficiency", f"{ideal_s / took_s:.3f}", f">= {MIN_EFFICIENCY}"
        yield "ideal of these startups in their order", f"{made.in_order_s():.0f} s", ""
        yield "efficiency by that", f"{made.in_order_s() / took_s:.3f}", ""
        yield "driver's CPU", f"{cpu_s:.0f} s, {100 * cpu_s / took_s:.0f} % of one", ""
        yield "all CPUs of the machine busy", f"{self._busy():.0f} %", ""
        yield "writer's lag p50", f"{1e3 * _quantile(lags, 0.5):.1f} ms", ""
        yield "writer's lag p99", f"{1e3 * _quantile(lags, 0.99):.1f} ms", f"< {1e3 * MAX_LAG_P99_S:.0f} ms"
        yield "writer's lag, longest", f"{1e3 * lags[-1]:.1f} ms", ""
        told = ", ".join(f"{most >> 20}" for most in quarters)
        yield "memory, most in each quarter of the time", f"{told} MiB", f"last < x {MAX_GROWTH} of second"
        yield "driver's open files, most", f"{self.open_files}", ""
        yield "store", f"{self.store.path.stat().st_size >> 20} MiB", ""

    def _quarters(self) -> list[int]:
        size = max(1, len(self.resident) // 4)
        return [max(self.resident[start : start + size], default=0) for start in range(0, 4 * size, size)]


def measure(arguments: argparse.Namespace, folder: Path, nodes: Fleet | None) -> list[tuple[str, str, str]]:
    """Rows of figure and limit."""
    lease = LeasePlan(per_host=8)
    if nodes is not None:
        own = {"inventory": "simulated:fleet", "lock_dir": str(folder / "locks"), "wait_s": 3600.0}
        lease = LeasePlan(per_host=arguments.devices // arguments.nodes, ray_address=nodes.address, **own)
    wanted = plan(arguments.devices, arguments.startups, lease)
    with TimedStore.open(folder / "fleet.sqlite") as store:
        store.lags_s = []
        meter = Meter(store, world(store, wanted, arguments.rounds, arguments.request_s), nodes)
        signal.signal(signal.SIGINT, partial(_cut, meter))  # a shell's background job would not hear it by itself
        with meter.running():
            drive(store, meter.made, folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        rows = list(meter.rows())
        recorded = store.recorded(meter.made.campaign_id)
    assert len(recorded.pairs) == arguments.startups * FIXTURES * PAIRS, len(recorded.pairs)
    return rows


def _cut(meter: Meter, *_: Any) -> None:
    """At once: startups that run may take minutes to end."""
    told = (row for row in meter.rows() if not row[0].startswith("efficiency"))
    show([("**cut off here**", "", ""), *told])
    raise KeyboardInterrupt


def show(rows: Sequence[tuple[str, str, str]]) -> None:
    print("| figure | found | limit |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def _nodes(folder: Path, campaign_id: str) -> Iterator[tuple[str, str, str]]:
    with Reader.open(folder / "fleet.sqlite") as reader:
        lives = reader.lives(campaign_id)
    devices = {uuid for life in lives for uuid in life.startup.device_uuids}
    hosts = {life.startup.host for life in lives}
    yield "Ray nodes, devices used", f"{len(hosts)}, {len(devices)}", ""
    actors = sorted(float(path.read_text()) for path in folder.glob(f"*/{CPU_S}"))
    yield "CPU of one startup's actor, p50; lives", f"{_quantile(actors, 0.5):.2f} s; {len(lives)}", ""


def machine_s() -> float:
    """CPU seconds that this machine has spent, whoever's."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _quantile(values: Sequence[float], q: float) -> float:
    return values[min(len(values) - 1, int(q * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--startups", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=10_000_000)
    parser.add_argument("--request-s", type=float, default=2.4)
    parser.add_argument("--nodes", type=int, default=0, help="Ray nodes that share the devices; 0: no Ray")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.nodes and (why := refusal()):
        parser.error(f"--nodes {arguments.nodes}: {why}")
    folder = Path(tempfile.mkdtemp(prefix="fleet-", dir=arguments.folder))
    each = [arguments.devices // arguments.nodes] * arguments.nodes if arguments.nodes else []
    try:
        with fleet(each) if each else nullcontext() as nodes:
            rows = measure(arguments, folder, nodes)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(rows)


if __name__ == "__main__":
    main()

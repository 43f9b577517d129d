"""Whether one driver bears a fleet: its loop, threads, answers and store, with servers that sleep instead of computing.

    python benchmarks/fleet.py [--devices 64] [--startups 512] [--rounds 10000000] [--request-s 2.4] [--folder DIR]
    python benchmarks/fleet.py --nodes 8                                                     # over Ray; as root

Real: the loop, a startup's life with its checks, the unpickling of every answer, comparison, the store on disk with a
durable transaction per request; with --nodes also that many Ray nodes (namespaces of this machine), places, claims,
locks, an actor for each startup, and answers that come through Ray. Not real: servers, devices; without --nodes, Ray.
Ideal is the time that the servers sleep divided by the devices, as if all else took no time. Prints a Markdown table of
figures and limits.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
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
from campaigns.plan import Arm, CampaignPlan, Fixture, LeasePlan, Role, ServerPlan, blocks
from campaigns.records import CampaignStatus, Request
from orchestrator import loop
from orchestrator.journal import Journal
from orchestrator.life import Desk
from orchestrator.preparation.prepare import Prepared
from orchestrator.progress import View
from orchestrator.startups.startup import StartupHandle
from orchestrator.stopping import Stopping
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.synthetic import Driver, Script, Trajectory

MIN_EFFICIENCY, MAX_LAG_P99_S, MAX_GROWTH = 0.9, 1.0, 1.25


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
    running: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sleeper(self, startup: int, attempt: int = 1) -> Sleeper:
        device = f"GPU-{startup % self.plan.lease.parallel}"
        return Sleeper(self.campaign_id, startup, attempt, self.answers, self.request_s, (device,))

    def ideal_s(self) -> float:
        slept_s = [STARTUP_S + sum(self.sleeper(n).waits_s) for n in range(self.plan.startups)]
        return sum(slept_s) / self.plan.lease.parallel

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
    return World(wanted, campaign.campaign_id, answers, request_s)


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


def measure(arguments: argparse.Namespace, folder: Path, nodes: Fleet | None) -> list[tuple[str, str, str]]:
    """Rows of figure and limit."""
    lease = LeasePlan(per_host=8)
    if nodes is not None:
        own = {"inventory": "simulated:fleet", "lock_dir": str(folder / "locks"), "wait_s": 3600.0}
        lease = LeasePlan(per_host=arguments.devices // arguments.nodes, ray_address=nodes.address, **own)
    wanted = plan(arguments.devices, arguments.startups, lease)
    with TimedStore.open(folder / "fleet.sqlite") as store:
        store.lags_s = []
        made = world(store, wanted, arguments.rounds, arguments.request_s)
        began, cpu, busy = time.perf_counter(), time.process_time(), machine_s()
        with memory() as seen:
            drive(store, made, folder)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        busy_s = machine_s() - busy
        recorded = store.recorded(made.campaign_id)
        lags = sorted(store.lags_s)
    assert len(recorded.pairs) == arguments.startups * FIXTURES * PAIRS, len(recorded.pairs)
    ideal_s = made.ideal_s()
    early, late = seen[len(seen) // 4], max(seen[len(seen) // 2 :])
    rounds = max(2, arguments.rounds // (arguments.startups * REQUESTS)) * arguments.startups * REQUESTS
    return [
        ("startups, devices, most at once", f"{arguments.startups}, {arguments.devices}, {made.most}", ""),
        *(_nodes(folder, made.campaign_id) if nodes is not None else ()),
        ("rounds", f"{rounds:,}", ""),
        ("wall time, ideal", f"{took_s:.0f} s, {ideal_s:.0f} s", ""),
        ("efficiency", f"{ideal_s / took_s:.3f}", f">= {MIN_EFFICIENCY}"),
        ("driver's CPU", f"{cpu_s:.0f} s, {100 * cpu_s / took_s:.0f} % of one", ""),
        ("all CPUs of the machine busy", f"{100 * busy_s / took_s / (os.cpu_count() or 1):.0f} %", ""),
        ("writer's lag p50", f"{1e3 * _quantile(lags, 0.5):.1f} ms", ""),
        ("writer's lag p99", f"{1e3 * _quantile(lags, 0.99):.1f} ms", f"< {1e3 * MAX_LAG_P99_S:.0f} ms"),
        ("writer's lag, longest", f"{1e3 * lags[-1]:.1f} ms", ""),
        ("memory after a quarter, later", f"{early >> 20} MiB, {late >> 20} MiB", f"< x {MAX_GROWTH}"),
        ("store", f"{(folder / 'fleet.sqlite').stat().st_size >> 20} MiB", ""),
    ]


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
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("| figure | found | limit |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()

"""How the store bears ten million rounds: ingest, report, history, query, verify; times and memory.

    python benchmarks/store_scale.py [--rounds 10000000] [--folder DIR]

Makes corpus campaigns of 148 prompts x 3 seeds x 3 startups x 2 arms until the rounds are reached, recorded as a driver
would: one durable transaction per request. Every question is a fresh `campaign` process. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from campaigns.exactness.compare import compare
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from campaigns.records import CampaignStatus, Request, StartupEnd, StartupStatus
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver

DATASETS = {"gsm8k": 32, "math500": 32, "humaneval": 32, "mbpp": 32, "livecodebench": 16, "structured": 4}
ROUNDS_PER_REQUEST = 940


@dataclass
class Ingest:
    rounds: int = 0
    requests: int = 0
    store_s: float = 0.0  # wall time inside Store.request
    cpu_s: float = 0.0


def plan() -> CampaignPlan:
    cases = [(dataset, i) for dataset, count in DATASETS.items() for i in range(count)]
    fixtures = tuple(Fixture(f"{dataset}/{i}", "{}", (0, 1, 2), dataset=dataset) for dataset, i in cases)
    arms = Arm("bv8"), Arm("bv2", (("gdn", "bv2"),))
    return CampaignPlan("scale", *arms, fixtures, ServerPlan("null"), corpus="scale", startups=3, pairs=1, warmups=0)


def fill(store: Store, rounds: int) -> Ingest:
    done, number = Ingest(), 0
    while done.rounds < rounds:
        number += 1
        _campaign(store, number, done, rounds)
        print(f"  campaign {number}: {done.rounds} rounds, {done.rounds / done.store_s:.0f} per s", file=sys.stderr)
    return done


def _campaign(store: Store, number: int, done: Ingest, rounds: int) -> None:
    driver = Driver(store, plan(), _script, run_number=number, created_utc=f"2026-01-{number:02d}T00:00:00+00:00")
    campaign = driver.campaign()
    templates = dict(_templates(driver, campaign.campaign_id))
    store.begin(campaign)
    store.status(campaign.campaign_id, CampaignStatus.RUNNING)
    for startup in range(driver.plan.startups):
        driver.start(campaign.campaign_id, startup, 1)
        position = 0
        for block in blocks(driver.plan, startup):
            store.block(campaign.campaign_id, block, 1)
            pair: dict[Role, Request] = {}
            for step in block.steps:
                position += 1
                pair[step.role] = replace(
                    templates[step.role, position % 5],
                    startup=startup,
                    key=step.key,
                    position=position,
                    order_in_pair=step.order_in_pair,
                )
                _record(store, pair[step.role], done)
            store.pair(compare(pair[Role.CONTROL], pair[Role.CANDIDATE], 4))
        store.startup_end(campaign.campaign_id, startup, 1, StartupEnd(StartupStatus.COMPLETE, CREATED))
    store.status(campaign.campaign_id, CampaignStatus.COMPLETE)


def _record(store: Store, request: Request, done: Ingest) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    store.request(request)
    done.store_s += time.perf_counter() - wall
    done.cpu_s += time.process_time() - cpu
    done.rounds += len(request.rounds)
    done.requests += 1


def _script(step: object, attempt: int) -> Script:
    return Script(
        Trajectory(ROUNDS_PER_REQUEST * 4, ROUNDS_PER_REQUEST, ROUNDS_PER_REQUEST * 3 - 1), 16.0, round_noise=0.02
    )


def _templates(driver: Driver, campaign_id: str) -> Iterator[tuple[tuple[Role, int], Request]]:
    """Five answers per arm; making them anew for every request would time the generator."""
    for step in blocks(driver.plan, 0)[0].steps:
        for i in range(5):
            yield (step.role, i), driver.request(campaign_id, step, 1, 1)


def ask(path: Path, *words: str) -> tuple[float, float, float]:
    """(wall s, CPU s, peak MiB) of one `campaign` process."""
    command = [sys.executable, "-m", "orchestrator.cli", *words, "--store", str(path)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 2):
        raise SystemExit(f"campaign {' '.join(words)} ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def inside(path: Path) -> Iterator[tuple[str, float, float]]:
    """The same questions without starting Python: what a notebook waits for."""
    from results.history.entries import history
    from results.history.query import query
    from results.reports.report import render
    from results.store.reader import Reader

    with Reader.open(path) as reader:
        for name, question in (
            ("report --format md", lambda: render(reader, reader.resolve("last"), "md")),
            ("history, all campaigns", lambda: history(reader)),
            ("query v_effect of one startup", lambda: query(reader, QUERIES[0])),
        ):
            question()
            wall, cpu = time.perf_counter(), time.process_time()
            question()
            yield name, time.perf_counter() - wall, time.process_time() - cpu


QUERIES = (
    "SELECT fixture_id, effect_pct FROM v_effect WHERE startup_index = 0"
    " AND campaign_id = (SELECT max(campaign_id) FROM campaign)",
    "SELECT role, avg(engine_ms), count(*) FROM v_round WHERE fixture_id = 'gsm8k/7' GROUP BY role",
    "SELECT count(*), avg(engine_ms) FROM v_round",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where the store is made (default: a temporary folder, removed)")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="store-scale-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scale.sqlite"
    with Store.open(path) as store:
        done = fill(store, options.rounds)
    size = path.stat().st_size
    sizes = f"{size / 2**20:.0f} MiB, {size / done.rounds:.0f} bytes a round"
    print(f"{done.requests} requests, {done.rounds} rounds, {sizes}\n")
    print(f"ingest: {done.rounds / done.store_s:.0f} rounds/s wall, {done.rounds / done.cpu_s:.0f} per CPU second\n")
    print("| question | wall s | CPU s | peak MiB |\n| --- | --- | --- | --- |")
    questions = [
        ("report", "last"),
        ("report", "last", "--format", "html", "--output", str(folder / "report.html")),
        ("history",),
        *(("query", sql, "--max-s", "60") for sql in QUERIES),
        ("verify", "last"),
    ]
    for words in questions:
        wall, cpu, peak = ask(path, *words)
        print(f"| `campaign {' '.join(words[:4])[:90]}` | {wall:.2f} | {cpu:.2f} | {peak:.0f} |", flush=True)
    print("\n| inside a running process | wall s | CPU s |\n| --- | --- | --- |")
    for name, wall, cpu in inside(path):
        print(f"| {name} | {wall:.3f} | {cpu:.3f} |")
    if options.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

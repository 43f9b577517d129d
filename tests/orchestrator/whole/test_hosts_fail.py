"""Hosts that fail otherwise than by dying: the head lost, a disk full, clocks wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import Exit
from campaigns.records import CampaignStatus, StartupStatus
from results.reading.summary import summarise
from results.store.reader import Life, Reader
from tests.orchestrator.whole.conftest import Fleet, fleet, refusal
from tests.orchestrator.whole.test_fleet import CAMPAIGN, Place, _free, leftovers

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

SMALL = ("campaign.startups=6", "lease.parallel=2", "lease.per_host=1", "campaign.pairs=4", "lease.wait_s=60")
PAIRS = 6 * 2 * 4
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, at);
    if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec -= 1800;
    return code;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec, at->tv_usec = now.tv_nsec / 1000;
    return code;
}
"""


@pytest.fixture(autouse=True)
def namespaces() -> None:
    if told := refusal():
        pytest.skip(told)


def lives_of(place: Place) -> list[Life]:
    with Reader.open(place.store) as reader:
        return reader.lives(reader.campaigns()[-1].campaign_id)


def require_whole(place: Place) -> Any:
    with Reader.open(place.store) as reader:
        campaign = reader.campaigns()[-1].campaign_id
        assert reader.status(campaign) is CampaignStatus.COMPLETE
        assert len(reader.recorded(campaign).pairs) == PAIRS
        summary = summarise(reader, campaign)
    assert summary.n_admissible_pairs == summary.n_exact_pairs == PAIRS
    verified = subprocess.run([CAMPAIGN, "verify", "last", "--store", place.store], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    return summary


def until(what: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while found := what():
        assert time.monotonic() < deadline, found
        time.sleep(1.0)


def held(place: Place) -> list[str]:
    return [path.name for path in (place.folder / "locks").glob("*") if not _free(path)]


def completed_on(place: Place) -> set[str]:
    return {x.startup.host for x in lives_of(place) if x.end and x.end.status is StartupStatus.COMPLETE}


def kill_head(made: Fleet) -> None:
    """All of Ray that runs in the machine's own namespace."""
    elsewhere = {pid for node in made.nodes.values() for pid in node.pids()}
    mine = [
        int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) not in elsewhere
    ]
    for pid in mine:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            if str(made.folder) in words and ("ray/core" in words or "ray/dashboard" in words):
                os.kill(pid, signal.SIGKILL)
    assert made.head is not None
    made.head.kill()
    made.head.wait()


def test_the_head_is_lost_and_a_new_one_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with fleet((8, 8)) as made:
        driver = place.start(CAMPAIGN, "run", *place.words(made.address, *SMALL))
        place.await_pairs(driver, 6)
        kill_head(made)
        assert driver.wait(240) == Exit.WORLD, place.told[-4000:]
        assert "nobody answers there for" in place.told and "campaign resume last" in place.told
        until(lambda: leftovers(made, place), 240)
        until(lambda: held(place), 30)
        before = place.num_pairs()
        assert before >= 6
        for number in (1, 2):
            made.nodes[number].kill()
        made.start_head()
        for number in (1, 2):
            made.add(number, 8)
        again = place.start(CAMPAIGN, "resume", "last", "--store", place.store)
        assert again.wait(400) in (Exit.COMPLETE, Exit.SLOWER), place.told[-4000:]
        require_whole(place)


def test_a_node_whose_disk_is_full_is_left_and_its_startups_run_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    place = Place(tmp_path)
    store = f"store.path={tmp_path / 'outputs' / 's.sqlite'}"
    with fleet(()) as made:
        made.add(1, 8, f"mount -t tmpfs -o size=64k,nr_inodes=2 none {tmp_path / 'outputs'}")
        made.add(2, 8)
        driver = place.start(CAMPAIGN, "run", *place.words(made.address, *SMALL, store))
        assert driver.wait(400) in (Exit.COMPLETE, Exit.SLOWER), place.told[-4000:]
        there = Place(tmp_path / "outputs")
        require_whole_at(there.folder / "s.sqlite")
    assert "refused `start` a file: [Errno 28] No space left on device" in place.told


def require_whole_at(store: Path) -> None:
    with Reader.open(store) as reader:
        campaign = reader.campaigns()[-1].campaign_id
        assert len(reader.recorded(campaign).pairs) == PAIRS
        hosts = {x.startup.host for x in reader.lives(campaign)}
    assert hosts == {"fleet2"}


def test_a_node_with_wrong_clocks_joins_in_the_middle_and_no_time_is_wrong(tmp_path: Path) -> None:
    """Its calendar is half an hour late, its monotonic clock eleven days ahead."""
    place = Place(tmp_path)
    setup = ""
    if shutil.which("cc"):
        (tmp_path / "shim.c").write_text(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "shim.so", tmp_path / "shim.c", "-ldl"], check=True)
        setup = f"export LD_PRELOAD={tmp_path / 'shim.so'}"
    with fleet((8,)) as made:
        driver = place.start(CAMPAIGN, "run", *place.words(made.address, *SMALL))
        place.await_pairs(driver, 2)
        late = made.add(2, 8, setup, ("--monotonic=1000000", "--boottime=1000000"))
        seen = subprocess.run(late.within("date", "+%s"), capture_output=True, text=True, check=True)
        assert abs(time.time() - int(seen.stdout) - 1800) < 60 or not setup
        assert driver.wait(400) in (Exit.COMPLETE, Exit.SLOWER), place.told[-4000:]
        assert completed_on(place) == {"fleet1", "fleet2"}  # it took the place that was free
        summary = require_whole(place)
    for arm in (summary.groups[0].control, summary.groups[0].candidate):
        assert 38 < arm.level_ms < 60  # the server's round takes 40 ms
    assert abs(summary.judgement.effect) < 0.1

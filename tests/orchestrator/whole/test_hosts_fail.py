"""Hosts that fail otherwise than in a startup: the head lost, a raylet hung, a host killed while it is claimed, a disk
full, clocks wrong.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.namespaces import Fleet, Node, fleet, refusal
from campaigns.errors import Exit, HelperLost
from campaigns.plan import Arm, CampaignPlan, Fixture, LeasePlan, ServerPlan
from campaigns.records import CampaignStatus, StartupStatus
from orchestrator.hosts.locks import Kind, LockFolder
from orchestrator.startups.claims import claims_of
from orchestrator.startups.cluster import connect
from orchestrator.startups.keeper import RemoteClaim
from orchestrator.startups.pulse import SILENCE_S
from orchestrator.startups.stand import Assignment
from orchestrator.startups.startup import StartupHandle
from results.reading.summary import summarise
from results.store.reader import Life, Reader
from tests.orchestrator.whole.test_fleet import CAMPAIGN, Place, _free, leftovers

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

SMALL = ("campaign.startups=6", "lease.parallel=2", "lease.per_host=1", "campaign.pairs=4", "lease.wait_s=60")
PAIRS = 6 * 2 * 4
HOLDS = """
import sys, time
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import name_holder
from orchestrator.hosts.locks import Kind, LockFolder
uuid = open_inventory("simulated:fleet").devices()[5].uuid
assert LockFolder(sys.argv[1]).try_lock(uuid, name_holder("campaign other"), Kind.CLAIM) is not None
print("held", flush=True)
time.sleep(600)
"""
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


def test_a_raylet_hangs_and_its_host_ends_what_nobody_asks_for_any_more(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with fleet((8, 8)) as made:
        driver = place.start(CAMPAIGN, "run", *place.words(made.address, *SMALL))
        place.await_pairs(driver, 4)
        running = {life.startup.host for life in lives_of(place) if life.end is None}
        hung = next(node for node in made.nodes.values() if node.name in running)
        [raylet] = [pid for pid in hung.pids() if Path(f"/proc/{pid}/comm").read_text().strip() == "raylet"]
        os.kill(raylet, signal.SIGSTOP)
        try:
            assert driver.wait(500) in (Exit.COMPLETE, Exit.SLOWER), place.told[-4000:]
            require_whole(place)
            until(lambda: leftovers(made, place) + held(place), SILENCE_S + 60)
            assert Path(f"/proc/{raylet}/stat").read_text().split()[2] == "T"  # nobody woke it
        finally:
            os.kill(raylet, signal.SIGCONT)
    assert f"on {hung.name} was lost during" in place.told


def hold(node: Node, place: Place) -> list[str]:
    """A command that claims one of the node's devices for another campaign and keeps it."""
    return node.within(sys.executable, "-c", HOLDS, place.folder / "locks")


def test_a_host_is_killed_while_its_devices_are_claimed(tmp_path: Path) -> None:
    """The claim waits there for a device that another program holds; then the power goes."""
    place = Place(tmp_path)
    one = "lease.count=8", "lease.parallel=1", "campaign.startups=2", "campaign.pairs=2", "lease.wait_s=300"
    with fleet(()) as made, subprocess.Popen(hold(made.add(1, 8), place), stdout=subprocess.PIPE) as other:
        lost = made.nodes[1]
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        driver = place.start(CAMPAIGN, "run", *place.words(made.address, *SMALL, *one))
        until(lambda: not any("ClaimActor" in command for command in lost.commands()), 120)
        made.add(2, 8)
        assert driver.poll() is None and place.num_pairs() == 0
        lost.kill()
        assert driver.wait(400) in (Exit.COMPLETE, Exit.SLOWER), place.told[-4000:]
        assert place.num_pairs() == 2 * 2 * 2 and completed_on(place) == {"fleet2"}
        assert "the claim of devices on fleet1 was lost" in place.told
        until(lambda: leftovers(made, place) + held(place), 30)


def test_claims_of_one_host_share_a_process_and_each_can_be_given_up_alone(tmp_path: Path) -> None:
    with fleet((8,)) as made:
        own = {"inventory": "simulated:fleet", "lock_dir": str(tmp_path / "locks"), "wait_s": 60.0}
        lease = LeasePlan(ray_address=made.address, parallel=2, per_host=2, **own)
        plan = CampaignPlan("t", Arm("a"), Arm("b"), (Fixture("f", "{}", (1,)),), ServerPlan("command"), lease=lease)
        folder = LockFolder(lease.lock_dir)
        with connect(lease) as cluster:
            claims = claims_of(cluster, plan, "c0ffee")
            one, two = (claims.take(time.monotonic() + 60, print) for _ in range(2))
            assert isinstance(one, RemoteClaim) and isinstance(two, RemoteClaim)
            assert sum("ray::ClaimActor" in command for command in made.nodes[1].commands()) == 1
            assert len({*one.uuids, *two.uuids}) == 2
            assert all(folder.is_held(uuid, [Kind.CLAIM]) for uuid in (*one.uuids, *two.uuids))
            claims._give_up(one)
            until(lambda: folder.is_held(one.uuids[0], [Kind.CLAIM]), 30)
            assert two.stands() and folder.is_held(two.uuids[0], [Kind.CLAIM]) and not one.stands()
        until(lambda: folder.is_held(two.uuids[0], [Kind.CLAIM]), 30)


def test_a_place_that_ray_moves_from_a_lost_host_is_left_and_the_next_claim_is_elsewhere(tmp_path: Path) -> None:
    """The host is lost after its claim was seen to stand and before the startup's actor is there."""
    with fleet((8,)) as made:
        own = {"inventory": "simulated:fleet", "lock_dir": str(tmp_path / "locks"), "wait_s": 60.0}
        lease = LeasePlan(ray_address=made.address, **own)
        fixtures = (Fixture("f", "{}", (1,)),)
        plan = CampaignPlan("t", Arm("a"), Arm("b"), fixtures, ServerPlan("command"), lease=lease)
        with connect(lease) as cluster:
            claims = claims_of(cluster, plan, "c0ffee")
            held = claims.take(time.monotonic() + 60, print)
            assert isinstance(held, RemoteClaim) and held.host == "fleet1"
            made.add(2, 8)
            made.nodes[1].kill()
            until(lambda: held.placement.node_id == held.node_id, 60)
            lost = Assignment(plan, "c0ffee", 0, 1, tmp_path, "campaign c0ffee", cluster.environment, 0)
            handle = StartupHandle(claims, held, lost, time.monotonic() + 60)
            with pytest.raises(HelperLost, match="Ray moved it to fleet2"):
                handle._acquire(10.0)
            handle._discard()
            with StartupHandle.lease(cluster, plan, "c0ffee", 0, 1, tmp_path) as again:
                [uuid] = again.uuids
    assert uuid.startswith(f"GPU-{zlib.crc32(b'fleet2'):08x}-")


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

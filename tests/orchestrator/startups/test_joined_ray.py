"""A startup on a Ray that somebody else runs: joined by address, found again after it, refused when it cannot serve."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.errors import LeaseTimeout, NoDevice
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, LeasePlan, ServerPlan
from campaigns.reasons import Reason
from campaigns.records import StartupStatus
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import name_holder
from orchestrator.hosts.locks import Kind, LockFolder
from orchestrator.startups.cluster import connect
from orchestrator.startups.head import device_resource
from orchestrator.startups.keeper import RemoteClaim
from orchestrator.startups.stand import Assignment, Stand
from orchestrator.startups.startup import StartupHandle

pytestmark = [pytest.mark.acceptance, pytest.mark.ray]

SMALL_SERVER = Path(__file__).parents[1] / "small_server.py"
GPU = open_inventory("simulated:one").devices()[0].uuid


@pytest.fixture(scope="module")
def session() -> Iterator[Path]:
    """Where the head and its workers keep their files; short, since sockets are among them."""
    folder = Path(tempfile.mkdtemp(prefix="rj-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def address(session: Path) -> Iterator[str]:
    """A head with Ray's own defaults: workers at nice 15, one thread each; started where no byte code is wanted, as in
    many containers.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"]
    options = ["--include-dashboard=false", "--num-cpus=1", "--num-gpus=0", "--object-store-memory=80000000"]
    named = f"--resources={json.dumps({device_resource(GPU): 1})}"
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **own}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    head = subprocess.Popen([*command, *options, named, f"--temp-dir={session}"], env=environment, **quiet)
    deadline = time.monotonic() + 120
    while not Path(session, "session_latest", "sockets", "raylet").exists():
        assert head.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    head.send_signal(signal.SIGTERM)
    head.wait(60)


@pytest.fixture
def plan(address: str, tmp_path: Path) -> CampaignPlan:
    lease = LeasePlan(
        uuids=(GPU,), inventory="simulated:one", lock_dir=str(tmp_path / "locks"), ray_address=address, wait_s=30.0
    )
    return CampaignPlan(
        name="test",
        control=Arm("one"),
        candidate=Arm("two"),
        fixtures=(Fixture("f", '{"prompt": "abc"}', (1,), chat=False),),
        server=ServerPlan("command", command=(sys.executable, str(SMALL_SERVER), "{port}"), stop_grace_s=0.3),
        lease=lease,
        calibrate_s=0.0,
        sample_hz=0.0,
    )


def test_a_startup_on_a_joined_ray(plan: CampaignPlan, tmp_path: Path) -> None:
    with connect(plan.lease) as cluster:
        assert not cluster.private
        with StartupHandle.lease(cluster, plan, "c0ffee", 0, 1, tmp_path) as handle:
            assert handle.uuids == (GPU,)
            record = handle.start()
            if os.geteuid() == 0:  # anyone else is refused, since the server would inherit Ray's nice 15
                assert os.getpriority(os.PRIO_PROCESS, record.processes[0].pid) == os.getpriority(os.PRIO_PROCESS, 0)
            assert "OMP_NUM_THREADS" not in record.environment
            answers = handle.run(blocks(plan, 0)[0].steps[:2], 6, 1)
            late = {
                Reason.FIRST_CHUNK_COALESCED,
                Reason.COALESCED_CHUNKS,
            }  # on a busy host
            assert all(r.admissible or set(r.reasons) & late for r in answers), [r.reasons for r in answers]
            assert len(answers) == 2
        assert handle.stop().status is StartupStatus.COMPLETE
    with connect(plan.lease) as cluster, StartupHandle.lease(cluster, plan, "c0ffee", 1, 1, tmp_path) as again:
        assert again.uuids == (GPU,)


def test_what_arrives_is_compiled_once_for_all_startups(plan: CampaignPlan, session: Path, tmp_path: Path) -> None:
    """Compiling costs an actor as much as all else that it does before its server starts."""
    with connect(plan.lease) as cluster, StartupHandle.lease(cluster, plan, "c0ffee", 0, 1, tmp_path) as handle:
        [code] = session.glob("session_2*/runtime_resources/working_dir_files/_ray_pkg_*/orchestrator")
        assert len(list(code.rglob("__pycache__/*.pyc"))) > 40
        assert "PYTHONDONTWRITEBYTECODE" not in handle.start().environment


def elsewhere(plan: CampaignPlan, tmp_path: Path, wait_s: float = 0.0) -> tuple[str, ...]:
    """Take and give back the devices as a stand of another cluster on that host would."""
    stand = Stand(Assignment(plan, "second", 0, 1, tmp_path, "campaign second", dict(os.environ), 19))
    try:
        return stand.acquire((), wait_s)
    finally:
        stand.stop()


@pytest.mark.parametrize("uuids", [(GPU,), ()], ids=["by name", "by count"])
def test_between_two_startups_the_devices_and_the_place_stay_the_campaigns(
    plan: CampaignPlan, tmp_path: Path, uuids: tuple[str, ...]
) -> None:
    plan = replace(plan, lease=replace(plan.lease, uuids=uuids))
    with connect(plan.lease) as cluster:
        for startup in range(2):
            with StartupHandle.lease(cluster, plan, "c0ffee", startup, 1, tmp_path) as handle:
                assert handle.uuids == (GPU,) and handle.start()
            with pytest.raises(LeaseTimeout, match="is held by campaign c0ffee of"):
                elsewhere(plan, tmp_path)
        assert len(cluster.claims) == 1
    assert elsewhere(plan, tmp_path, wait_s=30.0) == (GPU,)


def test_a_claim_whose_holder_died_is_taken_again(plan: CampaignPlan, tmp_path: Path) -> None:
    with connect(plan.lease) as cluster:
        import ray  # reads its settings when it is imported: `connect` has made them

        with StartupHandle.lease(cluster, plan, "c0ffee", 0, 1, tmp_path):
            pass
        claims = cluster.claims[plan.lease]
        first = claims.take(time.monotonic(), print)
        claims.give_back(first)
        assert isinstance(first, RemoteClaim)
        ray.kill(first.keeper.actor)
        deadline = time.monotonic() + 30  # Ray kills when it gets to it
        while first.stands():
            assert time.monotonic() < deadline
        with StartupHandle.lease(cluster, plan, "c0ffee", 1, 1, tmp_path) as handle:
            assert handle.uuids == (GPU,)
        with pytest.raises(LeaseTimeout, match="is held by campaign c0ffee of"):
            elsewhere(plan, tmp_path)


def test_devices_that_another_campaign_claims_there_are_waited_for(plan: CampaignPlan, tmp_path: Path) -> None:
    """By a campaign of another Ray on that host, whose lock folder is the same."""
    folder = LockFolder(plan.lease.lock_dir)
    fd = folder.try_lock(GPU, name_holder("campaign other"), Kind.CLAIM)
    assert fd is not None
    hasty = replace(plan, lease=replace(plan.lease, wait_s=1.0))
    with connect(hasty.lease) as cluster:
        with pytest.raises(LeaseTimeout, match="is held by campaign other"):
            StartupHandle.lease(cluster, hasty, "c0ffee", 0, 1, tmp_path)
        os.close(fd)
        with StartupHandle.lease(cluster, plan, "c0ffee", 0, 1, tmp_path) as handle:  # its place was given back
            assert handle.uuids == (GPU,)


def test_by_count_ray_places_and_the_host_picks(plan: CampaignPlan, tmp_path: Path) -> None:
    counted = replace(plan, lease=replace(plan.lease, uuids=(), count=1))
    with (
        connect(counted.lease) as cluster,
        StartupHandle.lease(cluster, counted, "c0ffee", 0, 1, tmp_path) as handle,
    ):
        assert handle.uuids == (GPU,)


def test_what_the_cluster_does_not_name_is_refused(plan: CampaignPlan, tmp_path: Path) -> None:
    for lease in (replace(plan.lease, uuids=(), indices=(0,)), replace(plan.lease, uuids=("GPU-other",))):
        with (
            connect(lease) as cluster,
            pytest.raises(NoDevice, match="does not name the devices asked for"),
        ):
            StartupHandle.lease(cluster, replace(plan, lease=lease), "c0ffee", 0, 1, tmp_path)

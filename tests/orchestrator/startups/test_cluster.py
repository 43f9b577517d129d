"""Ray as a campaign uses it, in the pytest process: one private instance for all of this file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import LeaseTimeout, NoDevice, ServerFailed, UsageError, WorldError
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, LeasePlan, Role, ServerPlan
from campaigns.reasons import FAILED, Reason
from campaigns.records import StartupStatus
from orchestrator.diagnosis.net import listening
from orchestrator.hosts import reaper
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.startups import head
from orchestrator.startups.cluster import Cluster, connect, place
from orchestrator.startups.head import device_resource
from orchestrator.startups.startup import StartupHandle

SMALL_SERVER = Path(__file__).parents[1] / "small_server.py"


pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAUNCHER_SAYS", "hello")
        patch.delenv("RAY_worker_niceness", raising=False)
        names, on_term = set(os.environ), signal.getsignal(signal.SIGTERM)
        with connect(LeasePlan(inventory="simulated:eight")) as cluster:
            assert signal.getsignal(signal.SIGTERM) is on_term  # Ray's own would end with a code of its own
            yield cluster
        assert set(os.environ) == names


@pytest.fixture
def plan(tmp_path: Path) -> CampaignPlan:
    return CampaignPlan(
        name="test",
        control=Arm("one"),
        candidate=Arm("two"),
        fixtures=(Fixture("f", '{"prompt": "abc"}', (1,), chat=False),),
        server=ServerPlan("command", command=(sys.executable, str(SMALL_SERVER), "{port}"), stop_grace_s=0.3),
        startups=1,
        pairs=2,
        lease=LeasePlan(inventory="simulated:eight", lock_dir=str(tmp_path / "locks")),
        calibrate_s=0.0,
        sample_hz=0.0,
    )


def with_server(plan: CampaignPlan, *options: str) -> CampaignPlan:
    return replace(plan, server=replace(plan.server, command=(*plan.server.command, *options)))


def lease(cluster: Cluster, plan: CampaignPlan, workdir: Path, name: str = "c0ffee") -> StartupHandle:
    return StartupHandle.lease(cluster, plan, name, 0, 1, workdir)


def uuid(index: int) -> str:
    return open_inventory("simulated:eight").devices()[index].uuid


def test_every_device_is_a_resource_and_ray_counts_no_gpus(cluster: Cluster) -> None:
    import ray

    resources = ray.cluster_resources()
    assert {device_resource(d.uuid) for d in open_inventory("simulated:eight").devices()} <= resources.keys()
    assert "GPU" not in resources
    assert cluster.private and cluster.environment["LAUNCHER_SAYS"] == "hello"
    assert "RAY_worker_niceness" not in cluster.environment


def test_a_private_ray_has_no_process_that_a_campaign_does_not_need(cluster: Cluster) -> None:
    assert head._processes(b"/raylet/raylet\0")
    assert not [word for word in (b"dashboard/dashboard.py", b"log_monitor", b"monitor.py") if head._processes(word)]


def test_nobody_else_on_the_network_can_reach_a_private_ray(cluster: Cluster) -> None:
    """Whoever can would run code here; Ray's own default is every interface."""
    heard = listening([os.getpid(), *reaper.descendants(os.getpid())])
    assert len(heard) > 3 and all(each.is_local for each in heard), heard


def test_a_startup_through_ray(cluster: Cluster, plan: CampaignPlan, tmp_path: Path) -> None:
    plan = replace(plan, lease=replace(plan.lease, indices=(6, 1)))
    with lease(cluster, plan, tmp_path) as handle:
        assert handle.uuids == (uuid(6), uuid(1))
        record = handle.start()
        assert record.environment["CUDA_VISIBLE_DEVICES"] == f"{uuid(6)},{uuid(1)}"
        assert record.environment["LAUNCHER_SAYS"] == "hello"
        assert "OMP_NUM_THREADS" not in record.environment  # Ray's 1 is not handed down
        [server] = record.processes
        assert os.getpriority(os.PRIO_PROCESS, server.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert handle.token_ids(plan.fixtures) == {"f": tuple(b"abc")} and handle.capacity() == 128
        block = blocks(plan, 0)[0]
        assert len(handle.warm(block, 1, tuple(Role), 6, 1)) == 2
        failed = [FAILED & {*r.reasons} for r in handle.run(block.steps[:2], 6, 1)]
        assert failed == [set()] * 2  # a busy machine may join their chunks, which excludes them and is told
        told = handle.identity()  # the server says nothing; the kernel says what it runs from
        assert set(told) == {"libraries", "libraries_host"} and handle.samples() == []
        assert any(Path(code["path"]).name.startswith(("python", "libpython")) for code in told["libraries"])
        end = handle.stop()
    assert end.status is StartupStatus.COMPLETE and handle.stop() is end
    assert reaper.start_ticks(server.pid) is None


def test_errors_cross_ray_as_themselves(cluster: Cluster, plan: CampaignPlan, tmp_path: Path) -> None:
    with lease(cluster, with_server(plan, "--exit", "3"), tmp_path) as handle:
        with pytest.raises(ServerFailed, match="exited with code 3") as caught:
            handle.start()
        assert type(caught.value) is ServerFailed
    wrong = replace(plan, server=replace(plan.server, command=()))
    with lease(cluster, wrong, tmp_path) as handle, pytest.raises(UsageError, match=r"server.command is empty"):
        handle.start()


def test_the_second_lease_waits_or_names_the_holder(cluster: Cluster, plan: CampaignPlan, tmp_path: Path) -> None:
    plan = replace(plan, lease=replace(plan.lease, indices=(0,)))
    with lease(cluster, plan, tmp_path, "first"):
        with pytest.raises(LeaseTimeout, match="campaign first, startup 1"):
            elsewhere(plan, tmp_path, wait_s=0.0)
        before = time.monotonic()
        with pytest.raises(LeaseTimeout, match="campaign first, startup 1"):
            elsewhere(plan, tmp_path, wait_s=1.0)
        assert time.monotonic() - before >= 1.0
    with pytest.raises(LeaseTimeout, match="is held by campaign first of"):  # the campaign, between two startups
        elsewhere(plan, tmp_path, wait_s=0.0)


def elsewhere(plan: CampaignPlan, tmp_path: Path, wait_s: float) -> None:
    """Take and give back the devices as a stand of another cluster would."""
    from orchestrator.startups.stand import Assignment, Stand

    stand = Stand(Assignment(plan, "second", 0, 1, tmp_path, "campaign second", dict(os.environ), 0))
    try:
        stand.acquire((), wait_s)
    finally:
        stand.stop()


def test_a_device_that_is_not_there(cluster: Cluster, plan: CampaignPlan, tmp_path: Path) -> None:
    with pytest.raises(NoDevice, match=r"lease.indices names 9"):
        lease(cluster, replace(plan, lease=replace(plan.lease, indices=(9,))), tmp_path)
    other = replace(plan, lease=replace(plan.lease, inventory="cpu"))
    with pytest.raises(NoDevice, match="does not name the devices asked for"):
        lease(cluster, other, tmp_path)


def test_a_killed_actor_is_a_failed_server_and_leaves_nothing(
    cluster: Cluster, plan: CampaignPlan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = with_server(plan, "--stubborn", "--daemon", str(tmp_path / "daemon"), "--token-pause", "30")
    with lease(cluster, plan, tmp_path) as handle:
        record = handle.start()
        daemon = int((tmp_path / "daemon").read_text())
        os.kill(_actor_pid(), signal.SIGKILL)
        with pytest.raises(ServerFailed, match="The startup was lost during `run`"):
            handle.run(blocks(plan, 0)[0].steps[:2], 6, 1)
        end = handle.stop()
    assert (end.status, end.reason, end.survivors) == (StartupStatus.FAILED, Reason.INTERRUPTED, ())
    assert reaper.start_ticks(record.processes[0].pid) is None and reaper.start_ticks(daemon) is None
    with lease(cluster, plan, tmp_path):
        pass
    assert capfd.readouterr() == ("", "")  # Ray has a page of advice for this case


def _actor_pid() -> int:
    """Ray names its workers by the class that they run."""
    workers = [pid for pid in reaper.descendants(os.getpid()) if b"StandActor" in _command(pid)]
    assert len(workers) == 1, workers
    return workers[0]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.acceptance
def test_startups_side_by_side_have_devices_of_their_own_and_the_next_takes_one_that_is_left(
    cluster: Cluster, plan: CampaignPlan, tmp_path: Path
) -> None:
    """Three want a place where two devices are to be had: the third gets one when a startup has left it."""
    file = tmp_path / "two.json"
    file.write_text('{"order": [0, 1]}')
    three = replace(plan, lease=replace(plan.lease, inventory=f"simulated:{file}", parallel=3, per_host=3))
    held, waits = threading.Barrier(3), threading.Event()

    def startup(number: int) -> tuple[str, ...]:
        told = waits.set if number == 2 else lambda: None
        with StartupHandle.lease(cluster, three, "c0ffee", number, 1, tmp_path, lambda why: told()) as handle:
            if number < 2:
                held.wait(60)
                assert waits.wait(60)
            return handle.uuids

    with ThreadPoolExecutor(3) as pool:
        first, second = pool.submit(startup, 0), pool.submit(startup, 1)
        held.wait(60)
        third = pool.submit(startup, 2)
        uuids = [future.result(120) for future in (first, second, third)]
    assert {uuids[0], uuids[1]} == {(uuid(0),), (uuid(1),)} and uuids[2] in uuids[:2]


def test_placing_what_ray_has_given_away_times_out(cluster: Cluster) -> None:
    wanted = LeasePlan(inventory="simulated:eight")
    joined: Any = replace(cluster, private=False)
    first = place(cluster, wanted, [uuid(3)], time.monotonic())
    with pytest.raises(LeaseTimeout, match="had no host with device:GPU"):
        place(joined, wanted, [uuid(3), uuid(4)], time.monotonic())
    first.remove()
    place(joined, wanted, [uuid(3), uuid(4)], time.monotonic() + 10).remove()


def test_folders_of_killed_drivers_are_cleared_and_those_of_living_ones_stay(cluster: Cluster) -> None:
    dead, half_deleted, begun = (
        Path(tempfile.mkdtemp(prefix=f"dflash2-ray-{os.getuid()}-", dir="/tmp")) for _ in range(3)
    )
    (dead / "alive").write_text("")
    (half_deleted / "0").mkdir()  # Ray's processes wrote on while it was deleted
    os.utime(half_deleted, (time.time() - 600,) * 2)
    try:
        with head._session_folder() as folder:
            assert folder.exists() and begun.exists() and not dead.exists() and not half_deleted.exists()
            assert cluster_session() in {path.name for path in Path("/tmp").iterdir()}
        assert not folder.exists()
    finally:
        begun.rmdir()


def cluster_session() -> str:
    """Name of the folder in which this process's Ray lives."""
    import ray

    return Path(ray._private.worker._global_node.get_session_dir_path()).parts[2]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("nowhere", "is not HOST:PORT"), ("127.0.0.1:1", r"nobody answers .*Is the Ray head up")],
)
def test_an_address_without_ray(address: str, sentence: str) -> None:
    with pytest.raises(WorldError, match=sentence), connect(LeasePlan(ray_address=address)):
        pass


def test_a_head_that_says_nothing_is_given_up_after_the_time_that_the_lease_allows() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        lease = LeasePlan(ray_address=f"127.0.0.1:{mute.getsockname()[1]}", ray_start_s=0.5)
        with pytest.raises(WorldError, match=r"not joined within 0\.5 s"), connect(lease):
            pass


@pytest.mark.acceptance
@pytest.mark.parametrize("which", [b"/raylet/raylet\0", b"dashboard/agent.py\0"], ids=["raylet", "agent"])
def test_a_slow_host_only_takes_longer(which: bytes) -> None:
    """A process of Ray stands still for longer than the 15 or 30 s that Ray's own code gives it."""
    script = (
        "from campaigns.plan import LeasePlan\nfrom orchestrator.startups.cluster import connect\n"
        "with connect(LeasePlan(inventory='simulated:one')): print('up', flush=True), input()\n"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as driver:
        [raylet] = _wait_for(driver, b"/raylet/raylet\0")
        [slow] = _wait_for(driver, which)
        os.kill(slow, signal.SIGSTOP)
        time.sleep(40)
        os.kill(slow, signal.SIGCONT)
        assert driver.stdout is not None and driver.stdout.readline() == "up\n"
        assert reaper.start_ticks(raylet) is not None  # the first one, not another attempt's
        driver.communicate("\n", timeout=60)
    assert driver.returncode == 0


def _wait_for(driver: subprocess.Popen[str], word: bytes) -> list[int]:
    found: list[int] = []
    while not found:
        assert driver.poll() is None
        found = [pid for pid in reaper.descendants(driver.pid) if word in _command(pid)]
    return found


@pytest.mark.acceptance
def test_a_raylet_that_ends_is_one_attempt_and_nothing_of_it_is_left() -> None:
    script = (
        "from campaigns.plan import LeasePlan\nfrom orchestrator.startups.cluster import connect\n"
        "with connect(LeasePlan(inventory='simulated:one')): print('up', flush=True), input()\n"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as driver:
        [raylet] = _wait_for(driver, b"/raylet/raylet\0")
        os.kill(raylet, signal.SIGKILL)
        assert driver.stdout is not None and driver.stdout.readline() == "up\n"
        stores = [pid for pid in reaper.descendants(driver.pid) if b"/gcs/gcs_server\0" in _command(pid)]
        assert len(stores) == 1
        driver.communicate("\n", timeout=60)
    assert driver.returncode == 0

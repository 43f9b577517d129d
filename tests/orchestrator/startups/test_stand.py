"""A startup's stand without Ray: real servers, real locks, a simulated device."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import HelperLost, LeaseTimeout, ServerFailed
from campaigns.order import blocks
from campaigns.plan import Arm, Block, CampaignPlan, Fixture, LeasePlan, Phase, Role, ServerPlan, StartupMode
from campaigns.reasons import Reason
from campaigns.records import EnergySource, StartupStatus
from orchestrator.hosts import reaper
from orchestrator.servers.adapters import open_adapter
from orchestrator.startups.stand import Assignment, Stand

SMALL_SERVER = Path(__file__).parents[1] / "small_server.py"
UNHURRIED = ("--token-pause", "0.02")  # on a busy host shorter pauses let two chunks come together
FIXTURE = Fixture("f", '{"prompt": "abc"}', (1,), chat=False)
SAME = (Arm("one"), Arm("two"))
DIFFERENT = (
    Arm("one", env=(("SMALL_SERVER_WORD", "one"),)),
    Arm("two", env=(("SMALL_SERVER_WORD", "two"),)),
)

StandMaker = Callable[..., Stand]


def make_plan(
    locks: Path,
    *options: str,
    mode: StartupMode = StartupMode.SWITCH,
    server: dict[str, Any] | None = None,
    inventory: str = "simulated:one",
    sample_hz: float = 0.0,
    calibrate_s: float = 0.0,
) -> CampaignPlan:
    control, candidate = SAME if mode is StartupMode.SWITCH else DIFFERENT
    command = (sys.executable, str(SMALL_SERVER), "{port}", *options)
    values: dict[str, Any] = {"command": command, "stop_grace_s": 0.3, "ready_timeout_s": 60.0, **(server or {})}
    return CampaignPlan(
        name="test",
        control=control,
        candidate=candidate,
        fixtures=(FIXTURE,),
        server=ServerPlan("command", **values),
        startups=2,
        pairs=2,
        startup_mode=mode,
        lease=LeasePlan(inventory=inventory, lock_dir=str(locks)),
        calibrate_s=calibrate_s,
        sample_hz=sample_hz,
    )


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[StandMaker]:
    stands: list[Stand] = []

    def maker(*options: str, startup: int = 0, name: str = "c0ffee", **plan: Any) -> Stand:
        frozen = make_plan(tmp_path / "locks", *options, **plan)
        workdir = tmp_path / f"work-{len(stands)}"
        workdir.mkdir()
        environment = {**os.environ, "FROM_LAUNCHER": "1", "HF_TOKEN": "hf_abc"}
        environment.pop("OMP_NUM_THREADS", None)
        stands.append(Stand(Assignment(frozen, name, startup, 1, workdir, f"campaign {name}", environment, 0)))
        return stands[-1]

    yield maker
    for each in stands:
        each.stop()


def ready(stand: Stand) -> Block:
    stand.acquire((), 0.0)
    stand.start()
    return blocks(stand.plan, 0)[0]


def show(scenario: Path, text: str) -> None:
    """Replaced as a whole: the sampler may read it at any moment."""
    new = scenario.with_suffix(".new")
    new.write_text(text)
    new.replace(scenario)


def sampled_from_now_on(stand: Stand) -> None:
    """Wait until the sampler has looked again: it starts when the machine lets it."""
    now_ns, deadline = time.monotonic_ns(), time.monotonic() + 30
    while not any(sample.ns > now_ns for sample in stand.samples()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(pid: int) -> bool:
    return reaper.start_ticks(pid) is None


def test_one_server_serves_both_arms(stand: StandMaker) -> None:
    it = stand(*UNHURRIED)
    [uuid] = it.acquire((), 0.0)
    record = it.start()
    assert record.role is None and record.device_uuids == (uuid,) and record.ready_ns
    assert [process.role for process in record.processes] == ["server"]
    assert record.environment["CUDA_VISIBLE_DEVICES"] == uuid
    assert record.environment["FROM_LAUNCHER"] == "1"
    assert record.environment["HF_TOKEN"] == "(not recorded)"
    assert it.token_ids([FIXTURE]) == {"f": tuple(b"abc")} and it.capacity() == 128
    block = blocks(it.plan, 0)[0]
    warm = it.warm(block, 2, tuple(Role), 6, 1)
    assert [(r.role, r.position, r.phase) for r in warm] == [
        (role, position, Phase.WARMUP) for position, role in enumerate([*Role, *Role])
    ]
    pair = it.run(block.steps[:2], 6, 3)
    assert [r.role for r in pair] == [step.role for step in block.steps[:2]]
    assert [(r.position, r.order_in_pair, r.block_attempt, r.admissible) for r in pair] == [
        (4, 0, 3, True),
        (5, 1, 3, True),
    ]
    assert {r.token_ids for r in pair} == {(0, 1, 2, 3, 4, 5)}
    end = it.stop()
    assert (end.status, end.survivors) == (StartupStatus.COMPLETE, ())
    assert gone(record.processes[0].pid)


def test_two_servers_side_by_side(stand: StandMaker) -> None:
    it = stand(mode=StartupMode.CO_RESIDENT)
    it.acquire((), 0.0)
    record = it.start()
    assert [process.role for process in record.processes] == ["control server", "candidate server"]
    assert record.role is None
    pair = it.run(blocks(it.plan, 0)[0].steps[:2], 6, 1)
    assert {r.role: r.text for r in pair} == {Role.CONTROL: "one" * 6, Role.CANDIDATE: "two" * 6}
    assert [r.position for r in pair] == [0, 0]
    it.stop()
    assert all(gone(process.pid) for process in record.processes)


@pytest.mark.parametrize("startup", [0, 1])
def test_two_lives_one_after_the_other(stand: StandMaker, startup: int) -> None:
    it = stand(mode=StartupMode.SEQUENTIAL, startup=startup)
    it.acquire((), 0.0)
    first = it.start()
    assert first.role is not None
    block = blocks(it.plan, startup)[0]
    [one] = it.warm(block, 1, (first.role,), 6, 1)
    second = it.activate(first.role.other)
    assert gone(first.processes[0].pid)
    [two] = it.warm(block, 1, (first.role.other,), 6, 1)
    assert (one.role, two.role) == (first.role, second.role) and one.text != two.text
    assert (one.position, two.position) == (0, 0)


def test_the_order_of_sequential_lives_flips_from_startup_to_startup(stand: StandMaker) -> None:
    first, second = (stand(mode=StartupMode.SEQUENTIAL, startup=startup) for startup in (0, 1))
    [one], [two] = first.first_lives(), second.first_lives()
    assert {one, two} == set(Role)


def test_a_device_in_use_names_its_campaign(stand: StandMaker) -> None:
    stand(name="first").acquire((), 0.0)
    with pytest.raises(LeaseTimeout, match="is held by campaign first of"):
        stand(name="second").acquire((), 0.0)


def test_a_server_that_exits_is_reported_at_once(stand: StandMaker) -> None:
    it = stand("--exit", "7", server={"ready_timeout_s": 200.0})
    it.acquire((), 0.0)
    before = time.monotonic()
    with pytest.raises(
        ServerFailed, match=r"exited with code 7; see .*server.log. Its log ends:\nweights are being read"
    ):
        it.start()
    assert time.monotonic() - before < 60.0


def test_a_server_that_is_not_ready_in_time(stand: StandMaker) -> None:
    it = stand("--slow-start", "60", server={"ready_timeout_s": 0.5})
    it.acquire((), 0.0)
    with pytest.raises(ServerFailed, match=r"/health was not ready within 0.5 s \(.*refused.*server.ready_timeout_s"):
        it.start()


def test_a_wrong_ready_path_is_told_by_its_status(stand: StandMaker) -> None:
    it = stand(server={"ready_timeout_s": 5.0, "ready_path": "/nowhere"})
    it.acquire((), 0.0)
    with pytest.raises(ServerFailed, match=r"/nowhere was not ready within 5 s \(HTTP 404\)"):
        it.start()


def test_a_server_that_dies_in_mid_answer(stand: StandMaker) -> None:
    it = stand("--die-after", "1")
    block = ready(it)
    [request] = it.run(block.steps[:2], 6, 1)
    assert request.reasons == (Reason.SERVER_DIED,) and not request.admissible
    assert "ended by signal 9" in request.error and request.text == "tick" * 3
    [late] = it.run(block.steps[2:], 6, 1)
    assert late.reasons == (Reason.SERVER_DIED,)
    assert it.stop().survivors == ()


def test_the_first_of_a_pair_is_kept_when_the_second_fails(stand: StandMaker) -> None:
    it = stand("--die-after", "2", *UNHURRIED)
    first, second = it.run(ready(it).steps[:2], 6, 1)
    assert first.admissible and not second.admissible


def test_stop_ends_a_request_in_flight(stand: StandMaker, tmp_path: Path) -> None:
    it = stand("--stubborn", "--daemon", str(tmp_path / "daemon"), "--token-pause", "200")
    block = ready(it)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(it.run(block.steps[:2], 6, 1)))
    thread.start()
    time.sleep(0.3)
    before = time.monotonic()
    end = it.stop()
    thread.join(60)
    assert time.monotonic() - before < 60.0
    assert end.survivors == () and gone(int((tmp_path / "daemon").read_text()))
    [[request]] = answers
    assert request.reasons == (Reason.SERVER_DIED,)


@pytest.mark.parametrize("hangs", ["stream", "counters", "ready"])
def test_stop_waits_for_no_server_of_others(stand: StandMaker, tmp_path: Path, hangs: str) -> None:
    """A silent one kept an interrupted campaign for a minute and more: its own limits are minutes."""
    with silent_server(hangs) as (url, asked):
        it = stand(server={"command": (), "base_url": url})
        it.plan = replace(it.plan, server=replace(it.plan.server, adapter="attach"))
        it._adapter = it._bench._adapter = open_adapter("attach")
        it._bench._plan = it.plan
        it.acquire((), 0.0)
        ended: list[Exception] = []

        def measure() -> None:
            try:
                it.start()
                it.run(blocks(it.plan, 0)[0].steps[:2], 6, 1)
            except (ServerFailed, HelperLost) as error:
                ended.append(error)

        thread = threading.Thread(target=measure)
        thread.start()
        assert asked.wait(60)
        it.stop()
        thread.join(60)
        assert not thread.is_alive() and len(ended) == 1


@contextmanager
def silent_server(hangs: str) -> Iterator[tuple[str, threading.Event]]:
    """Answers until it is asked what it hangs at; the event tells that it was."""
    asked, over = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer({"/health": "ready", "/metrics": "counters"}.get(self.path, ""))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer("stream" if self.path == "/v1/completions" else "")

        def _answer(self, what: str) -> None:
            if what == hangs == "ready":
                asked.set()
            elif what == hangs:
                asked.set()
                over.wait(60)
            self.send_response(503 if what == hangs else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    over.set()
    server.shutdown()
    server.server_close()


def test_stop_is_the_same_whatever_came_before(stand: StandMaker) -> None:
    never_leased = stand()
    assert never_leased.stop().status is StartupStatus.COMPLETE
    never_started = stand()
    never_started.acquire((), 0.0)
    assert never_started.stop().status is StartupStatus.COMPLETE
    again = stand()
    again.acquire((), 0.0)


def test_an_attached_server_is_measured_and_left_alone(stand: StandMaker, tmp_path: Path) -> None:
    running = stand(*UNHURRIED)
    ready(running)
    url = running.servers[0].base_url
    plan = replace(running.plan, lease=replace(running.plan.lease, inventory="simulated:foreign", indices=(0,)))
    locks = str(tmp_path / "other locks")  # ours are held by the startup that runs the server
    plan = replace(plan, server=ServerPlan("attach", base_url=url), lease=replace(plan.lease, lock_dir=locks))
    assignment = replace(running.assignment, plan=plan, workdir=running.assignment.workdir / "attached")
    attached = Stand(assignment)
    attached.acquire((), 0.0)
    record = attached.start()
    assert (record.processes, record.command) == ((), ())
    assert [r.admissible for r in attached.run(blocks(plan, 0)[0].steps[:2], 6, 1)] == [True, True]
    assert attached.stop().status is StartupStatus.COMPLETE
    assert running.servers[0].death() == ""


def test_a_server_hears_term_first(stand: StandMaker) -> None:
    it = stand(server={"stop_grace_s": 200.0})
    ready(it)
    [server] = it.servers
    before = time.monotonic()
    it.stop()
    assert time.monotonic() - before < 60.0
    assert server.tree is not None and server.tree.exit_code == -signal.SIGTERM


def test_samples_are_taken_and_joined_and_handed_out_once(stand: StandMaker) -> None:
    it = stand("--token-pause", "0.15", sample_hz=10.0, calibrate_s=0.3)
    it.acquire((), 0.0)
    record = it.start()
    assert record.calibration is not None and record.calibration.n_chunks > 60
    sampled_from_now_on(it)
    requests = it.run(blocks(it.plan, 0)[0].steps[:2], 6, 1)
    samples = it.samples()
    assert all(any(r.send_ns <= s.ns <= r.end_ns for s in samples) for r in requests)
    assert {s.device_uuid for s in samples} == {record.device_uuids[0]} and not any(s.foreign_pids for s in samples)
    assert not {s.ns for s in it.samples()} & {s.ns for s in samples}


def test_a_foreign_process_that_comes_later_excludes_the_request(stand: StandMaker, tmp_path: Path) -> None:
    scenario = tmp_path / "host.json"
    show(scenario, '{"order": [0]}')
    it = stand("--token-pause", "0.15", sample_hz=10.0, inventory=f"simulated:{scenario}")
    it.acquire((), 0.0)
    own = it.start().processes[0].pid
    steps = blocks(it.plan, 0)[0].steps
    show(scenario, f'{{"order": [0], "processes": {{"0": [{own}]}}}}')
    sampled_from_now_on(it)
    assert [r.admissible for r in it.run(steps[:2], 6, 1)] == [True, True]
    show(scenario, f'{{"order": [0], "processes": {{"0": [{own}, 4194304]}}}}')
    sampled_from_now_on(it)
    assert {r.reasons for r in it.run(steps[2:], 6, 1)} == {(Reason.FOREIGN_PROCESS,)}
    show(scenario, '{"order": [0]}')


def test_nothing_is_measured_where_nobody_looks_any_longer(stand: StandMaker, tmp_path: Path) -> None:
    scenario = tmp_path / "host.json"
    show(scenario, '{"order": [0]}')
    it = stand(sample_hz=10.0, inventory=f"simulated:{scenario}")
    it.acquire((), 0.0)
    it.start()
    sampled_from_now_on(it)
    show(scenario, "{")  # the machine does not say any longer what runs on its devices
    steps, deadline = blocks(it.plan, 0)[0].steps, time.monotonic() + 30
    with pytest.raises(HelperLost, match="samples the devices ended with code 1"):
        while time.monotonic() < deadline:
            it.run(steps[:2], 2, 1)
    show(scenario, '{"order": [0]}')


@pytest.mark.parametrize(
    ("later", "counts_as_host", "reasons"),
    [("777", False, ()), ("777, 888", False, (Reason.FOREIGN_PROCESS,)), ("777", True, (Reason.FOREIGN_PROCESS,))],
)
def test_a_server_whose_pids_nvml_counts_otherwise(
    stand: StandMaker,
    tmp_path: Path,
    later: str,
    counts_as_host: bool,
    reasons: tuple[Reason, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a container; on the host itself a number that is not ours is somebody else's."""
    monkeypatch.setattr("orchestrator.startups.stand.counts_as_the_host", lambda: counts_as_host)
    scenario = tmp_path / "host.json"
    show(scenario, '{"order": [0]}')
    it = stand("--token-pause", "0.15", sample_hz=10.0, inventory=f"simulated:{scenario}")
    it.acquire((), 0.0)
    show(scenario, '{"order": [0], "processes": {"0": [777]}}')
    it.start()
    show(scenario, f'{{"order": [0], "processes": {{"0": [{later}]}}}}')
    sampled_from_now_on(it)
    [request, _] = it.run(blocks(it.plan, 0)[0].steps[:2], 6, 1)
    assert request.reasons == reasons
    show(scenario, '{"order": [0]}')


def test_energy_is_what_the_devices_counted_while_the_request_ran(stand: StandMaker, tmp_path: Path) -> None:
    scenario = tmp_path / "host.json"
    show(scenario, '{"order": [0], "watts": {"0": 500}}')
    it = stand("--token-pause", "0.05", inventory=f"simulated:{scenario}")
    steps = ready(it).steps
    before_ns = time.monotonic_ns()
    requests = it.run(steps[:2], 6, 1)
    whole_mj = 500 * (time.monotonic_ns() - before_ns) * 1e-6
    assert {r.energy_source for r in requests} == {EnergySource.COUNTER}
    least_mj = [500 * (r.end_ns - r.send_ns) * 1e-6 for r in requests]
    assert all(r.energy_mj >= mj > 100 for r, mj in zip(requests, least_mj, strict=True) if r.energy_mj is not None)
    assert sum(r.energy_mj or 0 for r in requests) <= whole_mj
    show(scenario, '{"order": [0]}')
    assert {(r.energy_mj, r.energy_source) for r in it.run(steps[2:4], 2, 1)} == {(None, None)}

"""How a campaign ends early, or does not: a person's word, signals, lost helpers, readers that leave.

Loop and store are real, the servers are scripted.
"""

from __future__ import annotations

import errno
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaigns.errors import CannotExecute, Exit, HelperLost, RayLost, ServerFailed
from campaigns.plan import Block, Role, Step
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus, StartupEnd, StartupStatus
from orchestrator.checkouts.places import ROOT
from orchestrator.cli import main
from orchestrator.life import Desk
from orchestrator.stopping import NotNeeded, Stopped, Stopping
from results.reading.summary import summarise
from results.reports.layout import lay_out
from results.store.reader import Reader
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver

SMALL = ("campaign.startups=2", "campaign.pairs=1")


def faster(step: Step, attempt: int) -> Script:
    ms = 15.0 if step.role is Role.CANDIDATE else 16.0
    return Script(Trajectory(12, 4, 6), ms + step.key.startup / 10)


class Handle:
    def stop(self) -> StartupEnd:
        return StartupEnd(StartupStatus.COMPLETE, CREATED)


@contextmanager
def leased(*_: Any) -> Iterator[Handle]:
    yield Handle()


class Place:
    """One store; `happens` is called once, after the first block of the first life."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.happens: Callable[[], object] = lambda: None

        self.script = faster

    def life(self, desk: Desk, handle: Handle, startup: int, attempt: int) -> Life:
        return Life(self, desk, startup, attempt)

    def campaign(self, *words: str) -> int:
        return main([*words, "--store", str(self.store)])

    def run(self, *words: str) -> int:
        return main(["run", *SMALL, f"store.path={self.store}", *words])

    def standing(self) -> tuple[CampaignStatus, int, int]:
        with Reader.open(self.store) as reader:
            campaign = reader.campaigns()[-1].campaign_id
            return reader.status(campaign), len(reader.recorded(campaign).pairs), len(reader.campaigns())


class Life:
    def __init__(self, place: Place, desk: Desk, startup: int, attempt: int) -> None:
        self.place, self.desk, self.startup, self.attempt = place, desk, startup, attempt

    def run(self, blocks: Sequence[Block]) -> None:
        driver, campaign = Driver(self.desk.store, self.desk.plan, self.place.script), self.desk.campaign.campaign_id
        driver.start(campaign, self.startup, self.attempt)
        for block in blocks:
            driver.block(campaign, block, self.attempt)
            happens, self.place.happens = self.place.happens, lambda: None
            happens()
            self.desk.stop_requested(True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path / "c.sqlite")
    monkeypatch.setattr("orchestrator.loop.connect", lambda lease, halted: nullcontext())
    monkeypatch.setattr("orchestrator.attempt.StartupHandle.lease", leased)
    monkeypatch.setattr("orchestrator.attempt.Life", made.life)
    return made


def test_a_host_that_is_lost_before_its_startup_has_begun_costs_an_attempt(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [HelperLost("the claim of devices on fleet1 was lost"), ServerFailed("it was lost during `acquire`")]

    def lease(*args: Any) -> Any:
        if lost:
            raise lost.pop(0)
        return leased(*args)

    monkeypatch.setattr("orchestrator.attempt.StartupHandle.lease", lease)
    assert place.run("startup.retries=2") == Exit.COMPLETE
    with Reader.open(place.store) as reader:
        failures = reader.failures(reader.campaigns()[-1].campaign_id)
    assert [failure.reason for failure in failures] == [Reason.HELPER_LOST, Reason.SERVER_ERROR]
    lost[:] = [HelperLost("the claim of devices on fleet1 was lost")] * 2
    assert place.run("startup.retries=1") == Exit.WORLD
    assert "died in 2 attempts, in the last one because: the claim of devices on fleet1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.acceptance)],
)
def test_a_signal_ends_with_130_and_resume_goes_on(
    place: Place, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    place.happens = lambda: os.kill(os.getpid(), number)
    assert place.run() == Exit.INTERRUPTED
    assert "interrupted; go on with: campaign resume" in capsys.readouterr().err
    assert place.standing() == (CampaignStatus.INTERRUPTED, 1, 1)
    assert place.campaign("status") == Exit.COMPLETE
    assert f"(interrupted by {number.name}" in capsys.readouterr().out
    assert place.campaign("resume", "last") == Exit.COMPLETE
    assert place.standing() == (CampaignStatus.COMPLETE, 4, 1)


def test_a_stop_ends_with_130_says_so_everywhere_and_resume_goes_on(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.happens = lambda: place.campaign("stop", "last", "--reason", "lunch")
    assert place.run() == Exit.INTERRUPTED
    captured = capsys.readouterr()
    assert captured.err.rstrip().splitlines()[-1].startswith("held: lunch; go on with: campaign resume")
    assert "it is held because: lunch" in captured.out
    assert place.standing() == (CampaignStatus.HELD, 1, 1)
    assert place.campaign("status") == Exit.COMPLETE
    assert "held         1/4 pairs  smoke  (lunch)" in capsys.readouterr().out
    assert place.campaign("report", "last") == Exit.COMPLETE
    assert "status held" in capsys.readouterr().out
    assert place.campaign("resume", "last") == Exit.COMPLETE
    assert place.standing() == (CampaignStatus.COMPLETE, 4, 1)


def test_a_fixture_that_lost_everything_makes_the_campaign_incomplete(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pairs are recorded, and no resume would ask again: it does, once, and says the same until there is one."""
    lost = []

    def fails(step: Step, attempt: int) -> Script:
        lost[:] = lost or [step.key.fixture]
        made = faster(step, attempt)
        return replace(made, reasons=(Reason.HTTP_ERROR,), admissible=False) if step.key.fixture in lost else made

    place.script = fails
    for words in (None, ("resume", "last")):
        assert (place.campaign(*words) if words else place.run()) == Exit.WORLD
        assert f"no pair of {lost[0]} was answered" in capsys.readouterr().err
        assert place.standing() == (CampaignStatus.FAILED, 4, 1)
    place.script = faster
    assert place.campaign("resume", "last") == Exit.COMPLETE
    assert place.standing() == (CampaignStatus.COMPLETE, 4, 1)


def test_a_stop_may_wait_for_the_block(tmp_path: Path) -> None:
    (tmp_path / "stop").write_text("meant for an earlier life")
    stopping = Stopping(tmp_path)
    (tmp_path / "stop-after-block").write_text("lunch")
    stopping.check(0, False)
    for startup in range(2):  # each of those that run side by side
        with pytest.raises(Stopped, match="lunch"):
            stopping.check(startup, True)
    stopping.check(1, False)
    (tmp_path / "stop").write_text("now")
    with pytest.raises(Stopped, match="now"):
        stopping.check(0, False)
    assert not list(tmp_path.iterdir())


def test_what_an_earlier_startup_ends_ends_after_its_block_and_not_the_earlier_ones(tmp_path: Path) -> None:
    stopping = Stopping(tmp_path)
    stopping.none_after(3)
    stopping.none_after(5)  # a later one that fails too says nothing new
    for startup in range(4):
        stopping.check(startup, True)
    stopping.check(4, False)
    with pytest.raises(NotNeeded):
        stopping.check(4, True)


def test_a_stop_says_before_how_many_pairs_it_costs(
    place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def happens() -> None:
        monkeypatch.setattr("orchestrator.stopping.n_of_open_blocks", lambda reader, name: 3)
        place.campaign("stop", "last")
        place.campaign("stop", "last", "--after-block")

    place.happens = happens
    assert place.run() == Exit.INTERRUPTED
    told = capfd.readouterr().out
    assert "3 finished pairs of its block and the current one will be measured again by resume" in told
    assert "will end after its current block; no finished pair is lost" in told


def test_a_failed_campaign_says_why_in_its_report(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    def dies() -> None:
        raise CannotExecute("no such program: nonesuch")

    place.happens = dies
    assert place.run() == Exit.WORLD
    for format in ("md", "html", "json"):
        capfd.readouterr()
        place.campaign("report", "last", "--format", format)
        assert "no such program: nonesuch" in capfd.readouterr().out


def test_what_changed_in_between_is_refused_with_the_commit_to_go_back_to(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for dirty, said in (("", "(0123456789ab)"), ("ef", "(0123456789ab with the edits that were not committed)")):
        git = {"git_commit": "0123456789abcdef", "dirty_diff_sha256": dirty}
        with monkeypatch.context() as patched:
            patched.setattr("orchestrator.preparation.identity.git_state", lambda git=git: git)
            place.happens = lambda: place.campaign("stop", "last")
            assert place.run() == Exit.INTERRUPTED
            patched.setattr("orchestrator.preparation.identity.CONTROL_PLANE", ("results",))
            assert place.campaign("resume", "last") == Exit.IDENTITY
        told = f"control_plane_sha256 changed since it began; check out the commit it began with {said}, on the host"
        assert told in capfd.readouterr().err


def lose(error: Exception) -> None:
    raise error


def test_a_lost_helper_is_named_and_its_startup_tried_again(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.happens = lambda: lose(HelperLost("the recording process ended with code -9"))
    assert place.run() == Exit.COMPLETE
    assert "startup 1, attempt 1: the recording process ended with code -9" in capsys.readouterr().err
    assert place.standing() == (CampaignStatus.COMPLETE, 4, 1)
    with Reader.open(place.store) as reader:
        [failure] = reader.failures(reader.resolve("last"))
    assert failure.reason is Reason.HELPER_LOST


def test_a_lost_ray_ends_with_5_and_a_broken_pipe_of_ours_is_a_bug_and_no_reader_that_left(place: Place) -> None:
    place.happens = lambda: lose(RayLost("Ray is gone"))
    assert place.run() == Exit.WORLD and place.standing()[0] is CampaignStatus.FAILED
    place.happens = lambda: lose(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert place.campaign("resume", "last") == Exit.BUG and place.standing()[0] is CampaignStatus.FAILED
    assert place.campaign("resume", "last") == Exit.COMPLETE


def printing(code: str, **pipes: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, cwd=ROOT, **pipes)


LASTING = """
import sys
from orchestrator.output import terminal
sys.stdin.read()  # until the reader has left
lasting = terminal.Lasting(sys.stdout)
for _ in range(3):
    lasting.write("x" * 100_000)
    lasting.flush()
sys.exit(7)
"""


def test_a_campaigns_output_outlives_its_reader_and_other_commands_end_quietly_with_it(place: Place) -> None:
    lasting = printing(LASTING, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    command = "import sys; sys.stdin.read(); from orchestrator.cli import main; sys.exit(main(['--help']))"
    other = printing(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for process, code in ((lasting, 7), (other, 0)):
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert (process.communicate(timeout=60)[1], process.returncode) == (b"", code)


DETACHED = """
import sys
from pathlib import Path
from orchestrator.output.detaching import detach, settle
waited = detach()
if waited is None:
    print("refused" if sys.argv[1] == "refuse" else "begins", flush=True)
    if sys.argv[1] == "refuse":
        sys.exit(5)
    settle("c0ffee", Path(sys.argv[1]))
    sys.stdin.read()
    print("goes on")
    sys.exit(1)
sys.exit(waited)
"""


def test_a_detached_campaign_says_where_it_is_and_goes_on_in_its_log(tmp_path: Path) -> None:
    def run(word: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-c", DETACHED, word], capture_output=True, text=True, cwd=ROOT)
        return done.returncode, done.stdout

    code, told = run(str(tmp_path))
    assert code == 0 and told.startswith("begins\n") and "campaign status c0ffee --watch" in told
    log = tmp_path / "console.log"
    deadline = time.monotonic() + 30
    while "goes on" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert log.read_text() == "goes on\n"
    assert run("refuse") == (5, "refused\n"), "what ends before it has begun ends where it was asked for"


def test_a_campaigns_folder_that_refuses_is_a_sentence(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.happens = lambda: lose(OSError(errno.ENOSPC, "No space left on device"))
    assert place.run() == Exit.WORLD and "cannot be written (No space left on device)" in capsys.readouterr().err
    [log] = place.store.parent.glob("*/campaign.jsonl")
    shutil.rmtree(log.parent)
    log.parent.touch()  # a file where the folder was
    assert place.campaign("resume", "last") == Exit.WORLD
    assert f"{log.parent}" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_any_encoding_prints(encoding: str) -> None:
    code = "from orchestrator.output import terminal; terminal.print_anything(); print('1 ± 2 → µs … 漢 é')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert done.returncode == 0 and b"-> " in done.stdout and b"\\u6f22" in done.stdout, done


def test_names_command_neither_a_terminal_nor_whoever_shows_a_file() -> None:
    code = "from orchestrator.output import terminal; terminal.print_anything(); print('a\\x1b[2Jb\\u202e\\nc')"
    main_fd, terminal_fd = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=terminal_fd, cwd=ROOT, check=True)
    assert os.read(main_fd, 1000) == b"a\\x1b[2Jb\\u202e\r\nc\r\n"
    os.close(main_fd)
    os.close(terminal_fd)
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)
    assert piped.stdout == b"a\\x1b[2Jb\\u202e\nc\n"


def test_cells_that_look_like_formulas_are_text_to_a_spreadsheet() -> None:
    told = lay_out("csv", ["=name", "value"], [["=HYPERLINK(1)", -1.5], ["@x", None], ["plain", 2]])
    assert told.splitlines() == ["'=name,value", "'=HYPERLINK(1),-1.5", "'@x,", "plain,2"]


def test_a_stop_that_nobody_lived_to_see_does_not_hold_the_next_life(place: Place) -> None:
    def killed() -> None:
        place.campaign("stop", "last")
        raise KeyboardInterrupt

    place.happens = killed
    assert place.run() == Exit.INTERRUPTED
    assert place.campaign("resume", "last") == Exit.COMPLETE
    assert place.standing() == (CampaignStatus.COMPLETE, 4, 1)


def test_a_startup_that_died_says_why_and_a_command_that_is_none_is_not_tried_again(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    tried: list[type[ServerFailed]] = []

    def dies(kind: type[ServerFailed]) -> Callable[[], object]:
        def happens() -> None:
            tried.append(kind)
            place.happens = happens
            raise kind("The server exited with code 2; see a. Its log ends:\nusage: x\nx: error: no such flag")

        return happens

    place.happens = dies(ServerFailed)
    assert place.run() == Exit.WORLD
    why = (
        "in the last one because: The server exited with code 2; see a. Its log ends: usage: x; x: error: no such flag"
    )
    assert f"startup 1 died in 2 attempts, {why}; the servers' logs are in" in capfd.readouterr().err
    place.happens = dies(CannotExecute)
    assert place.run() == Exit.WORLD
    assert tried == [ServerFailed, ServerFailed, CannotExecute]


@pytest.mark.acceptance
def test_a_sweep_ends_with_the_campaign_that_was_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.store.parent)  # Hydra writes a sweep's words below outputs/
    place.happens = lambda: os.kill(os.getpid(), signal.SIGINT)
    sweep = ("run", "--multirun", *SMALL, f"store.path={place.store}", "campaign.seed=1,2,3")
    assert main(list(sweep)) == Exit.INTERRUPTED
    assert place.standing() == (CampaignStatus.INTERRUPTED, 1, 1)


# -- campaigns that end when they are decided --------------------------------------------------------------------------

DECIDED = ("campaign.stop=decided", "campaign.startups=6", "campaign.pairs=2")
_NOISE = (0.003, -0.004, 0.001, -0.002, 0.004, -0.003)  # of the startups' effects; their mean tells of nothing


def differing(by: float, noise: float = 0.1) -> Callable[[Step, int], Script]:
    """The candidate takes 1 + `by` of the control's time; `noise` scales what startups do to it."""

    def script(step: Step, attempt: int) -> Script:
        factor = 1 + by + noise * _NOISE[step.key.startup] if step.role is Role.CANDIDATE else 1.0
        return Script(Trajectory(12, 4, 6), 16.0 * factor)

    return script


def looked(place: Place) -> tuple[list[tuple[int, str]], Any, str]:
    """The recorded looks, the judgement of the report, and the newest status' reason."""
    with Reader.open(place.store) as reader:
        campaign = reader.resolve("last")
        looks = [(look.n_seen, look.verdict) for look in reader.looks(campaign)]
        return looks, summarise(reader, campaign).judgement, reader.status_history(campaign)[-1].reason


@pytest.mark.parametrize(
    ("by", "word", "code"),
    [
        pytest.param(-0.05, "faster", Exit.COMPLETE, marks=pytest.mark.acceptance),
        (0.05, "slower", Exit.SLOWER),
    ],
)
def test_a_large_difference_ends_at_the_first_look(
    place: Place, by: float, word: str, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    place.script = differing(by)
    assert place.run(*DECIDED) == code
    told = capsys.readouterr()
    assert f"decided: {word} after 3 of at most 6 startups" in told.err
    assert "three startups (look 1 of at most 4)" in told.out and "ended by hand" not in told.out
    assert place.standing() == (CampaignStatus.COMPLETE, 12, 1)
    looks, judgement, reason = looked(place)
    assert looks == [(3, word)] and reason == f"{word} after 3 of at most 6 startups"
    assert judgement.verdict == word and judgement.interval.method.endswith("look 1 of at most 4")
    assert place.campaign("plan", "--from", "last", "--effect", "5") == Exit.COMPLETE
    assert "3.0 startups expected, 6 at worst; told in 100 %" in capsys.readouterr().out
    assert place.campaign("resume", "last") == code  # nothing is missing of what is decided
    assert place.standing() == (CampaignStatus.COMPLETE, 12, 1) and looked(place)[0] == looks


@pytest.mark.acceptance
def test_equal_arms_end_as_equivalent_or_at_the_last_startup(place: Place) -> None:
    place.script = differing(0.0)
    assert place.run(*DECIDED) == Exit.COMPLETE
    assert looked(place)[0] == [(3, "equivalent")]
    place.script = differing(0.0, noise=3)
    assert place.run(*DECIDED, "campaign.min_startups=4") == Exit.COMPLETE
    assert looked(place)[0] == [(n, "inconclusive") for n in (4, 5, 6)]
    assert looked(place)[2] == "" and place.standing()[1] == 24
    place.script = differing(
        0.008
    )  # smaller than a margin that was stated, and than the floor of what startups did before
    assert place.run(*DECIDED, "campaign.margin_percent=2") == Exit.COMPLETE
    assert looked(place)[0] == [(3, "equivalent")]


@pytest.mark.acceptance
@pytest.mark.parametrize("startup", [1, 3])
def test_who_is_stopped_between_looks_decides_as_who_is_not(place: Place, tmp_path: Path, startup: int) -> None:
    place.script = differing(-0.004, noise=1)
    assert place.run(*DECIDED) == Exit.COMPLETE
    whole, judgement, _ = looked(place)
    assert len(whole) > 2
    place.store = tmp_path / "stopped.sqlite"

    def stops(step: Step, attempt: int) -> Script:
        if step.key.startup == startup and attempt == 1 and not stopped:
            stopped.append(place.campaign("stop", "last", "--after-block"))
        return differing(-0.004, noise=1)(step, attempt)

    stopped: list[int] = []
    place.script = stops
    assert place.run(*DECIDED) == Exit.INTERRUPTED
    between, half, _ = looked(place)
    assert between == whole[: len(between)] and half.n_startups == startup  # half a startup was seen by no look
    assert place.campaign("resume", "last") == Exit.COMPLETE
    again, found, _ = looked(place)
    assert again == whole and found.interval == judgement.interval and found.verdict == judgement.verdict


def test_who_stops_a_fixed_plan_by_hand_is_told_what_that_costs(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def stops(step: Step, attempt: int) -> Script:
        if step.key.startup == 3 and not stopped:
            stopped.append(place.campaign("stop", "last", "--after-block"))
        return differing(-0.05)(step, attempt)

    stopped: list[int] = []
    place.script = stops
    assert place.run("campaign.startups=6") == Exit.INTERRUPTED
    assert "ended by hand after" in capsys.readouterr().out
    assert looked(place)[0] == [(3, "faster")]
    place.campaign("report", "last")
    assert "of 6 startups, told faster after 3: no rule covers such looks" in capsys.readouterr().out
    assert place.campaign("resume", "last") == Exit.COMPLETE
    assert "ended by hand" not in capsys.readouterr().out  # it went on to the end that was planned


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("campaign.stop=soon",), "use one of planned, decided"),
        (("campaign.stop=decided", "campaign.startups=2"), "campaign.min_startups=3 and campaign.startups=2"),
        (("campaign.stop=decided", "campaign.startups=9", "campaign.min_startups=2"), "first after 3 or more"),
        (("campaign.stop=decided", "campaign.startups=101"), "last after 100 or fewer"),
        (("campaign.min_startups=3",), "add campaign.stop=decided"),
        (("campaign.stop=decided", "campaign.startups=9", "campaign.profile=true"), "compares no times"),
        (("campaign.margin_percent=0",), "campaign.margin_percent=0.0: must lie between"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(
    place: Place, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.run(*words) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_a_sweep_ends_with_one_table_of_its_campaigns(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that cannot be prepared is said and leaves the others; a job is named by what distinguishes it."""
    place.store.touch()  # as it is while another job makes it
    swept = ("campaign.startups=1", "campaign.pairs=2", "campaign.seed=0,1", "startup.calibrate_s=0,-1")
    assert main(["run", "--multirun", *swept, f"store.path={place.store}"]) == Exit.USAGE
    told = capsys.readouterr()
    assert told.err.count("startup.calibrate_s=-1.0") == 2
    lines = told.out.splitlines()[-4:]
    assert lines[0].split() == ["job", "campaign", "effect", "95", "%", "interval", "verdict", "exact", "pairs", "exit"]
    assert [line.split()[0] for line in lines[2:]] == ["campaign.seed=0", "campaign.seed=1"]
    assert all("-6.25 %" in line and line.endswith("0") and "4/4" in line for line in lines[2:])
    with Reader.open(place.store) as reader:
        ids = [campaign.campaign_id for campaign in reader.campaigns()]
    assert sorted(line.split()[1] for line in lines[2:]) == sorted(ids)


@pytest.mark.acceptance
def test_a_person_who_ends_a_sweep_ends_all_of_it(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.happens = lambda: os.kill(os.getpid(), signal.SIGINT)
    words = ["run", "--multirun", *SMALL, "campaign.seed=0,1,2", f"store.path={place.store}"]
    assert main(words) == Exit.INTERRUPTED
    with Reader.open(place.store) as reader:
        assert len(reader.campaigns()) == 1
    assert "campaign.seed=0" in capsys.readouterr().out.splitlines()[-1]


def test_campaigns_side_by_side_need_a_host_that_takes_them(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--multirun", *SMALL, "campaign.seed=0,1", "sweep.parallel=2", f"store.path={place.store}"]
    assert main(words) == Exit.USAGE
    assert "sweep.parallel=2 with lease.parallel=1, and this host takes lease.per_host=1" in capsys.readouterr().err


ROUND_MS = {"torch-plain": 16.0, "columns-32": 15.0, "torch-tuned": 14.0}


@pytest.mark.acceptance  # six campaigns are composed, three measured
def test_a_race_keeps_its_losers_and_confirms_its_winner_in_new_startups(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def life(desk: Desk, handle: Handle, startup: int, attempt: int) -> Life:
        arms = {role: ROUND_MS[desk.plan.arm(role).name] for role in Role}
        place.script = lambda step, _: Script(Trajectory(12, 4, 6), arms[step.role] + step.key.startup / 10)
        return place.life(desk, handle, startup, attempt)

    monkeypatch.setattr("orchestrator.attempt.Life", life)
    words = ("campaign.startups=2", "campaign.pairs=2", "arm@campaign.control=torch-plain", "--startups", "1")
    assert place.campaign("race", "columns-32", "torch-tuned", *words) == Exit.COMPLETE
    told = capsys.readouterr().out
    assert "2 arms: 2 x 1 startups, then 2 to confirm: 4 in all" in told
    table = [line.split() for line in told[told.rindex("round ") :].splitlines()[2:4]]
    assert [(*row[:3], row[-1]) for row in table] == [
        ("1", "columns-32", "1", "half"),
        ("1", "torch-tuned", "1", "stays"),
    ]
    assert "torch-tuned won, and in startups that the race has not seen:" in told.splitlines()[-1]
    with Reader.open(place.store) as reader:
        names = [campaign.name for campaign in reader.campaigns()]
    assert sorted(names) == ["confirmation: torch-tuned", "race, round 1: columns-32", "race, round 1: torch-tuned"]


def test_a_race_needs_arms(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.campaign("race", "columns-32", "campaign.pairs=2") == Exit.USAGE
    assert "a race needs two arms or more" in capsys.readouterr().err
    assert place.campaign("race", "columns-32", "nonesuch") == Exit.USAGE
    assert not place.store.exists()

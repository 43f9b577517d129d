"""A bisection over repositories that the test makes, whose server changes at a commit that it knows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaigns.errors import Exit, UsageError
from campaigns.records import CampaignStatus
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.revisions import BuildFailed, Repository, build
from orchestrator.studies.series import Series
from results.store.reader import Reader

CAMPAIGN = Path(sys.executable).with_name("campaign")
SERVER = (ROOT / "docs" / "examples" / "small_openai_server.py").read_text()
IDS = "return list(digest * 2)"


class Made:
    """A repository with a commit for each step; `commits` are their hashes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commits: list[str] = []
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, subject: str, **files: str) -> str:
        for name, text in files.items():
            (self.folder / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        self.commits.append(self.git("rev-parse", "HEAD"))
        return self.commits[-1]


def made(folder: Path, n: int, changed: int, *, slower: bool, broken: int | None = None) -> Made:
    """`n` commits; from number `changed` on a round takes 6 ms instead of 3, or one token is another."""
    repository = Made(folder)
    for number in range(n):
        other = SERVER.replace(IDS, f"{IDS[:-4]}[:20] + b'z' + digest)" if not slower else IDS)
        server = other if number >= changed else SERVER
        round_ms = "6.0" if slower and number >= changed else "3.0"
        server = server.replace("type=float, default=3.0", f"type=float, default={round_ms}")
        make = "exit 3" if number == broken else "mkdir made && cp serve.py made/serve.py"
        repository.commit(f"step {number}", **{"serve.py": f"{server}\n# {number}\n", "build.sh": f"{make}\n"})
    return repository


def words(repository: Made, folder: Path, good: int, bad: int, *more: str) -> list[str]:
    return [
        str(CAMPAIGN),
        "bisect",
        repository.commits[good],
        repository.commits[bad],
        f"--repo={repository.folder}",
        "--build=sh build.sh",
        f"--store={folder / 's.sqlite'}",
        "server=command",
        f"server.command={json.dumps([sys.executable, '{tree}/made/serve.py', '{port}'])}",
        "campaign=endpoint",
        "campaign.required_exactness=3",
        "campaign.pairs=2",
        "campaign.warmups=1",
        "campaign.max_tokens=24",
        "startup.calibrate_s=0",
        f"lease.lock_dir={folder / 'locks'}",
        *more,
    ]


def evidence(store: Path) -> list[tuple[str, CampaignStatus]]:
    with Reader.open(store) as reader:
        return [(campaign.name, reader.status(campaign.campaign_id)) for campaign in reader.campaigns()]


# -- git and files, no campaign -------------------------------------------------------------------------------------


def test_a_line_follows_first_parents_and_refuses_what_does_not_descend(tmp_path: Path) -> None:
    there = Made(tmp_path / "r")
    first, second = there.commit("one"), there.commit("two")
    there.git("checkout", "--quiet", "-b", "side", first)
    side = there.commit("beside")
    there.git("checkout", "--quiet", "main")
    there.git("merge", "--quiet", "--no-ff", "-m", "merge beside", "side")
    last = there.git("rev-parse", "HEAD")
    repository = Repository(there.folder)
    assert [revision.sha for revision in repository.line(first, "main")] == [first, second, last]
    assert [revision.subject for revision in repository.line(first, "HEAD")] == ["one", "two", "merge beside"]
    with pytest.raises(UsageError, match=f"as {side[:12]}"):
        repository.line("side", "main")
    with pytest.raises(UsageError, match="no such commit"):
        repository.line("nowhere", "main")
    with pytest.raises(UsageError, match="one commit"):
        repository.line("main", last)
    with pytest.raises(UsageError, match="git rev-parse"):
        Repository(tmp_path)


def test_each_revision_is_built_in_a_tree_of_its_own_and_hashed_with_what_was_built(tmp_path: Path) -> None:
    there = Made(tmp_path / "r")
    there.commit("one", code="a")
    there.commit("two", code="b")
    repository = Repository(there.folder)
    line = repository.line(there.commits[0], "main")
    hashes = []
    for revision in line:
        repository.check_out(revision, tmp_path / "trees" / revision.short)
        hashes.append(build(tmp_path / "trees" / revision.short, "cp code built", tmp_path / "log"))
    assert [(tmp_path / "trees" / r.short / "built").read_text() for r in line] == ["a", "b"]
    assert hashes[0] != hashes[1] and hashes[0] == build(tmp_path / "trees" / line[0].short, "", tmp_path / "log")
    with pytest.raises(BuildFailed, match="ended with 7: no compiler"):
        build(tmp_path / "trees" / line[0].short, "echo no compiler; exit 7", tmp_path / "log")
    repository.check_out(line[0], tmp_path / "trees" / line[0].short)  # again, over what is there
    assert not (tmp_path / "trees" / line[0].short / "built").exists()
    for revision in line:
        repository.remove(tmp_path / "trees" / revision.short)
    assert len(there.git("worktree", "list").splitlines()) == 1


def test_a_series_is_found_again_with_all_that_ended_and_belongs_to_one_process(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with Series.begin(store, "bisect", {"good": "a"}) as series:
        series.began("ends", "c0ffee")
        series.ended("ends", Exit.SLOWER)
        series.ended("b", note="its build ended with 3")
        with pytest.raises(UsageError, match="at work in another process"):
            Series.find(store, "bisect", "last")
    with Series.find(store, "bisect", series.name[:10]) as again:
        assert again.asked == {"good": "a"} and again.code("ends") is Exit.SLOWER and again.campaign("ends") == "c0ffee"
        assert again.note("b") and again.code("b") is None and again.campaign("c") is None
    with pytest.raises(UsageError, match="no race of that name"):
        Series.find(store, "race", "last")


# -- campaigns -------------------------------------------------------------------------------------------------------


@pytest.mark.acceptance
@pytest.mark.ray
def test_the_commit_that_made_it_slower_is_found_past_a_broken_one_after_a_kill(tmp_path: Path) -> None:
    n, changed, broken = 8, 5, 3
    repository = made(tmp_path / "r", n, changed, slower=True, broken=broken)
    command = words(repository, tmp_path, 0, n - 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as driver:
        _await(driver, lambda: len(evidence(tmp_path / "s.sqlite")) >= 3)  # the first of those between
        time.sleep(3.0)
        driver.kill()
        driver.communicate()
    before = evidence(tmp_path / "s.sqlite")
    again = [str(CAMPAIGN), "bisect", "--resume", f"--store={tmp_path / 's.sqlite'}"]
    done = subprocess.run(again, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == Exit.COMPLETE, done.stdout + done.stderr[-3000:]
    assert f"{repository.commits[changed][:12]} (step {changed}) changed speed by +" in done.stdout
    assert "stepped over: its build ended with 3" in done.stdout
    found = evidence(tmp_path / "s.sqlite")
    assert {status for _, status in found} == {CampaignStatus.COMPLETE}
    assert [name for name, _ in found[: len(before)]] == [name for name, _ in before]  # and the killed one went on
    assert len(found) <= 2 + 3 + 1, found  # the ends' tokens and speed, log2(7), the confirmation
    assert len(repository.git("worktree", "list").splitlines()) == 1
    size = re.search(r"changed speed by \+([\d.]+) %", done.stdout)
    assert size and 60 < float(size[1]) < 110  # twice the pause, less what a round costs beside it


@pytest.mark.acceptance
@pytest.mark.ray
def test_the_commit_that_changed_a_token_is_found_and_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    n, changed = 7, 2
    repository = made(tmp_path / "r", n, changed, slower=False)
    command = words(repository, tmp_path, 0, n - 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as driver:
        _await(driver, lambda: len(evidence(tmp_path / "s.sqlite")) >= 2)
        driver.send_signal(signal.SIGINT)
        told, _ = driver.communicate(timeout=120)
    assert driver.returncode == Exit.INTERRUPTED and "campaign bisect --resume bisect-" in told
    again = [str(CAMPAIGN), "bisect", "--resume", f"--store={tmp_path / 's.sqlite'}"]
    done = subprocess.run(again, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == Exit.COMPLETE, done.stdout + done.stderr[-3000:]
    assert f"{repository.commits[changed][:12]} (step {changed}) changed tokens, seen again" in done.stdout
    assert len(evidence(tmp_path / "s.sqlite")) <= 1 + 3 + 1
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout.split()
    assert [pid for pid in left if int(pid) != os.getpid()] == []


@pytest.mark.acceptance
@pytest.mark.ray
def test_ends_that_are_alike_are_told_so(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", 3, 99, slower=True)
    done = subprocess.run(
        [*words(repository, tmp_path, 0, 2, "campaign.margin_percent=5", "campaign.startups=6")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == Exit.STRICT, done.stdout + done.stderr[-3000:]
    assert "nothing to look for: the ends are " in done.stdout and len(evidence(tmp_path / "s.sqlite")) == 2


def _await(driver: subprocess.Popen[str], there: object) -> None:
    deadline = time.monotonic() + 300
    while True:
        assert driver.poll() is None and time.monotonic() < deadline, driver.communicate()
        try:
            if there():  # type: ignore[operator]
                return
        except UsageError:
            pass
        time.sleep(0.3)

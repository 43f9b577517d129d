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
from orchestrator.checkouts.revisions import BuildFailed, Repository, Revision, build
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
    with pytest.raises(UsageError, match=f"the newest that it does is {first[:12]}"):
        repository.line("side", "main")
    with pytest.raises(UsageError, match=f"{first} is older than main: .* campaign bisect {first} main"):
        repository.line("main", first)
    assert side not in {revision.sha for revision in repository.line(first, "main")}
    with pytest.raises(UsageError, match="no such commit"):
        repository.line("nowhere", "main")
    with pytest.raises(UsageError, match="one commit"):
        repository.line("main", last)
    with pytest.raises(UsageError, match="git rev-parse"):
        Repository(tmp_path)


def test_what_people_write_in_subjects_paths_and_settings_makes_no_commits(tmp_path: Path) -> None:
    there = Made(tmp_path / "ré po ")
    there.git("config", "log.showSignature", "true")
    first = there.commit("one")
    there.commit("two\u2028three\x0cfour\x85five")
    there.git("config", "i18n.commitEncoding", "utf-8")
    message = tmp_path / "message"
    message.write_bytes("grün".encode("latin-1"))
    there.git("commit", "--quiet", "--allow-empty", "-F", str(message))
    found = Repository(there.folder).line(first, "main")
    assert [revision.sha for revision in found] == there.git("rev-list", "--reverse", "main").split()
    assert found[1].subject == "two\u2028three\x0cfour\x85five" and "\udcfc" not in found[2].subject


def test_shallow_and_bare_clones(tmp_path: Path) -> None:
    there = Made(tmp_path / "r")
    first = there.commit("one")
    there.commit("two")
    last = there.commit("three")
    there.git("clone", "--quiet", "--depth=2", f"file://{there.folder}", str(tmp_path / "shallow"))
    there.git("clone", "--quiet", "--bare", str(there.folder), str(tmp_path / "bare.git"))
    with pytest.raises(UsageError, match="no such commit; it is a shallow clone: git fetch --unshallow"):
        Repository(tmp_path / "shallow").line(first, last)
    bare = Repository(tmp_path / "bare.git")
    bare.check_out(bare.line(first, last)[1], tmp_path / "tree")
    assert (tmp_path / "tree" / ".git").exists()


def test_a_tree_without_its_submodules_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, outer = Made(tmp_path / "inner"), Made(tmp_path / "outer")
    inner.commit("one", code="x")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text('[protocol "file"]\nallow = always\n')
    outer.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.folder), "lib")
    outer.commit("two")
    repository = Repository(outer.folder)
    revision = Revision(outer.commits[0], "two")
    repository.check_out(revision, tmp_path / "tree")
    assert (tmp_path / "tree" / "lib" / "code").read_text() == "x"
    inner.folder.rename(tmp_path / "gone")
    with pytest.raises(BuildFailed, match=r"its submodules cannot be had: git submodule in .*outer"):
        repository.check_out(revision, tmp_path / "tree")


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
def test_a_server_that_never_answers_like_itself_blames_no_commit(tmp_path: Path) -> None:
    repository = Made(tmp_path / "r")
    server = SERVER.replace(IDS, "return list(__import__('os').urandom(32))")
    for number in range(4):
        repository.commit(
            f"step {number}", **{"serve.py": f"{server}\n# {number}\n", "build.sh": "mkdir made\ncp *.py made\n"}
        )
    done = subprocess.run(words(repository, tmp_path, 0, 3), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == Exit.STRICT, done.stdout + done.stderr[-3000:]
    assert f"nothing to look for: {repository.commits[0][:12]} itself answers otherwise" in done.stdout
    assert len(evidence(tmp_path / "s.sqlite")) == 1


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

"""Locks that several processes and users share: held as long as any copy of the descriptor, errors in a sentence."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.errors import WorldError
from campaigns.records import Process
from orchestrator.hosts.locks import Holder, Kind, LockFolder, Mark

HOLDER = Holder("campaign c0ffee, startup 1", "ada", "host", 42, "2026-01-01T00:00:00+00:00")
MARK = Mark("memory in use", (Process(7, 8, "server"),), "boot", "2026-01-01", "ada")


@pytest.fixture
def folder(tmp_path: Path) -> LockFolder:
    return LockFolder(str(tmp_path / "locks"))


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that another user can reach, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    path.chmod(0o755)
    yield path / "locks"
    shutil.rmtree(path)


def as_nobody(action: Callable[[], object]) -> int:
    """Run in a child without root's rights; its exit code, 0 unless `action` raised or was false."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forking beside threads
        child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os._exit(0 if action() is not False else 2)
        except WorldError:
            os._exit(5)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def test_one_holder_at_a_time_who_is_named(folder: LockFolder) -> None:
    fd = folder.try_lock("GPU-1", HOLDER)
    assert fd is not None
    assert folder.try_lock("GPU-1", HOLDER) is None
    assert folder.is_held("GPU-1") and not folder.is_held("GPU-2")
    assert (
        folder.holder("GPU-1") == "campaign c0ffee, startup 1 of ada on host (PID 42, since 2026-01-01T00:00:00+00:00)"
    )
    os.close(fd)
    assert not folder.is_held("GPU-1")
    again = folder.try_lock("GPU-1", HOLDER)
    assert again is not None
    os.close(again)
    assert folder.uuids() == ("GPU-1",)


def test_a_copy_of_the_descriptor_keeps_the_lock(folder: LockFolder) -> None:
    fd = folder.try_lock("GPU-1", HOLDER)
    assert fd is not None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[fd]) as other:
        os.close(fd)
        assert folder.is_held("GPU-1")
        other.send_signal(signal.SIGKILL)
    assert not folder.is_held("GPU-1")


def test_everyone_may_use_the_files_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = LockFolder(str(tmp_path / "locks"))
        fd = folder.try_lock("GPU-1", HOLDER)
        folder.set_mark("GPU-1", MARK)
    finally:
        os.umask(before)
    assert fd is not None
    os.close(fd)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o1777
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()} == {
        "GPU-1.lock": 0o666,
        "GPU-1.mark": 0o666,
    }


@needs_root
def test_two_users_exclude_each_other_and_clear_each_others_marks(shared: Path) -> None:
    folder = LockFolder(str(shared))
    fd = folder.try_lock("GPU-1", HOLDER)
    assert fd is not None
    folder.set_mark("GPU-1", MARK)
    assert as_nobody(lambda: folder.try_lock("GPU-1", HOLDER) is None and folder.is_held("GPU-1")) == 0
    os.close(fd)
    assert as_nobody(lambda: folder.try_lock("GPU-1", HOLDER) is not None) == 0
    assert as_nobody(lambda: folder.set_mark("GPU-1", None)) == 0
    assert folder.mark("GPU-1") is None


@needs_root
def test_a_lock_that_another_user_shut_is_a_fault_and_not_a_free_device(shared: Path) -> None:
    folder = LockFolder(str(shared))
    fd = folder.try_lock("GPU-1", HOLDER)
    assert fd is not None
    os.close(fd)
    (shared / "GPU-1.lock").chmod(0o600)
    assert as_nobody(lambda: folder.try_lock("GPU-1", HOLDER)) == 5
    assert as_nobody(lambda: folder.is_held("GPU-1")) == 5
    shared.chmod(0o700)
    assert as_nobody(lambda: LockFolder(str(shared)).try_lock("GPU-2", HOLDER)) == 5


def test_faults_name_path_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldError, match=r"locks cannot be kept: .*/file: .*lease.lock_dir"):
        LockFolder(str(tmp_path / "file"))
    folder = LockFolder(str(tmp_path / "locks"))
    (folder.path / "GPU-1.lock").symlink_to(tmp_path / "file")
    with pytest.raises(WorldError, match=r"GPU-1.lock: Too many levels of symbolic links"):
        folder.try_lock("GPU-1", HOLDER)
    (folder.path / "GPU-2.lock").mkdir()
    with pytest.raises(WorldError, match=r"GPU-2.lock: Is a directory"):
        folder.try_lock("GPU-2", HOLDER)


def test_marks_come_back_as_they_were_set(folder: LockFolder) -> None:
    assert folder.mark("GPU-1") is None
    folder.set_mark("GPU-1", MARK)
    assert folder.mark("GPU-1") == MARK
    folder.set_mark("GPU-1", None)
    assert folder.mark("GPU-1") is None
    (folder.path / "GPU-1.mark").write_text('{"reason": 1}')
    with pytest.raises(WorldError, match=r"GPU-1.mark is not a mark"):
        folder.mark("GPU-1")


def test_a_holder_that_is_just_writing_is_still_a_holder(folder: LockFolder) -> None:
    fd = folder.try_lock("GPU-1", HOLDER)
    assert fd is not None
    os.ftruncate(fd, 10)
    assert folder.holder("GPU-1") == "somebody who left no name"
    os.close(fd)


def test_a_claim_and_a_lease_are_two_locks(folder: LockFolder) -> None:
    claim = folder.try_lock("GPU-1", replace(HOLDER, name="campaign"), Kind.CLAIM)
    assert claim is not None and folder.is_held("GPU-1") and folder.uuids() == ("GPU-1",)
    assert not folder.is_held("GPU-1", [Kind.LEASE]) and folder.holder("GPU-1").startswith("campaign of ada")
    lease = folder.try_lock("GPU-1", HOLDER)
    assert lease is not None and folder.holder("GPU-1") == str(HOLDER)
    os.close(claim)
    assert folder.is_held("GPU-1")
    os.close(lease)
    assert not folder.is_held("GPU-1")


@contextmanager
def no_room() -> Iterator[None]:
    """The kernel refuses every byte that a file should take, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_named_with_its_file_and_loses_neither_mark_nor_lock(folder: LockFolder) -> None:
    holder = Holder("campaign a", "me", "here", 1, "2026-01-01")
    mark = Mark("it did not come back", (), "boot", "2026-01-01", "campaign a")
    folder.set_mark("GPU-1", mark)
    os.close(folder.try_lock("GPU-1", holder) or -1)
    with no_room():
        with pytest.raises(WorldError, match=r"GPU-1\.mark: File too large\. Make room there"):
            folder.set_mark("GPU-1", None)
        with pytest.raises(WorldError, match=r"GPU-1\.lock: .* Make room there"):
            folder.try_lock("GPU-1", holder)
    assert folder.mark("GPU-1") == mark
    assert not folder.is_held("GPU-1")

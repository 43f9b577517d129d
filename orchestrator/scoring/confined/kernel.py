"""The few Linux calls that Python 3.11 has no names for, with errors that say which call was refused.

Knows nothing of sandboxes. Numbers are those of <linux/sched.h>, <linux/mount.h> and <linux/prctl.h>.
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203}
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 38, 36
_CAPABILITY_V3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The kernel said no."""


def _check(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise Refused(f"{what}: {os.strerror(number)}")


def unshare(flags: int, what: str) -> None:
    _check(f"unshare({what})", _libc.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [word.encode() for word in (source, target, kind)]
    _check(f"mount({kind or source} on {target})", _libc.mount(*words, ctypes.c_ulong(flags), options.encode()))


def bind_read_only(source: str, target: str) -> None:
    """A bind mount with everything below it; flags that the source's mount has are kept, as the kernel demands."""
    mount(source, target, "", MS_BIND | MS_REC)
    kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC | _ATIME_FLAGS)
    mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


_ATIME_FLAGS = 1024 | 2048  # noatime, nodiratime: equal in statvfs and mount


def enter_root(folder: str) -> None:
    """Make `folder` the root and let go of the old one."""
    os.chdir(folder)
    call = _PIVOT_ROOT.get(os.uname().machine)
    if call is None:
        raise Refused(f"pivot_root: number unknown on {os.uname().machine}")
    _check("pivot_root", _libc.syscall(call, b".", b"."))
    _check("umount of the old root", _libc.umount2(b".", MNT_DETACH))
    os.chdir("/")


def _prctl(what: str, option: int, value: int) -> None:
    _check(f"prctl({what})", _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent goes; at once when it has gone already. A change of uid undoes it."""
    _prctl("PDEATHSIG", _PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(1)


def set_dumpable(on: bool) -> None:
    """Off: no process of the same uid can trace this one or look into its /proc folder."""
    _prctl("DUMPABLE", _PR_SET_DUMPABLE, on)


def no_new_privileges() -> None:
    _prctl("NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def adopt_orphans() -> None:
    _prctl("CHILD_SUBREAPER", _PR_SET_CHILD_SUBREAPER, 1)


def drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_V3, 0)
    _check("capset", _libc.capset(header, (ctypes.c_uint32 * 6)()))

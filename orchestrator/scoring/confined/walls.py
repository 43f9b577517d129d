"""The walls round generated code: fresh namespaces, an empty root, an unprivileged uid, resource limits.

`python -I -S -c START` runs `main`: it reads one request from standard input, raises the walls, and lets the judge run
as the first process inside. The order matters. Root builds everything first and gives up its uid before the user
namespace, so that nothing in there is owned by it; anyone else needs the user namespace to build at all.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from orchestrator.scoring.confined import judge, kernel

_SPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
_DEVICES = ("null", "zero", "random", "urandom")
# not all of /usr: checkouts, and stores in them, lie in places like /usr/src
_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libexec")
_SYSTEM = tuple(f"{prefix}/{name}" for prefix in ("/usr", "/usr/local", "") for name in _FOLDERS)
WORK = "/sandbox"


def main(result_fd: int) -> None:
    request = json.loads(sys.stdin.buffer.read())
    kernel.die_with_parent(request["parent"])
    os.umask(0o022)
    _null_standard_streams()
    try:
        child = _fork_inside(request)
    except (kernel.Refused, OSError) as error:
        _refuse(result_fd, error)
        os._exit(3)
    if child:
        os.close(result_fd)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    _inside(request, result_fd)


def _fork_inside(request: dict[str, Any]) -> int:
    """Enter the namespaces; the forked child is the first process of the new PID namespace."""
    if request["mode"] == "weak":
        kernel.adopt_orphans()
    elif os.geteuid() == 0:
        kernel.unshare(_SPACES, "mount, PID, network, IPC, UTS")
    else:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(_SPACES | kernel.CLONE_NEWUSER, "user, mount, PID, network, IPC, UTS")
        _map_ids(uid, gid)
    return os.fork()


def _inside(request: dict[str, Any], result_fd: int) -> None:
    """First process inside: raise the remaining walls, then judge. Never returns.

    Only walls can be refused. What fails behind them fails for the answer alone: a program that breaks its judge gets
    no verdict, and must not pass for a machine that cannot confine it.
    """
    code = 3
    try:
        if _raise_walls(request, result_fd):
            code = judge.main(request["job"], result_fd)
    finally:
        os._exit(code)


def _raise_walls(request: dict[str, Any], result_fd: int) -> bool:
    try:
        _weak(request) if request["mode"] == "weak" else _strong(request)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a handler would let signals of the answer through to the judge
        kernel.die_with_parent(os.getppid())  # behind every change of uid and capabilities: those undo it
        kernel.set_dumpable(False)
        kernel.no_new_privileges()
        _limit(request["limits"])
    except (kernel.Refused, OSError) as error:
        _refuse(result_fd, error)
        return False
    return True


def _strong(request: dict[str, Any]) -> None:
    _build_root(request)
    if os.geteuid() == 0:
        _drop_uid(request["uid"])
        kernel.unshare(kernel.CLONE_NEWUSER, "user")
        _map_ids(request["uid"], request["uid"])
    # a namespace of its own would hand generated code fresh capabilities and uncounted memory (a new tmpfs)
    _write("/proc/sys/user/max_user_namespaces", "0")
    kernel.drop_capabilities()
    os.chdir(WORK)


def _weak(request: dict[str, Any]) -> None:
    os.chdir(request["folder"])
    if os.geteuid() == 0:
        _drop_uid(request["uid"])
    kernel.adopt_orphans()


def _build_root(request: dict[str, Any]) -> None:
    """A root that holds the interpreter, system libraries and an empty work folder; everything else is not there."""
    root = Path(request["folder"])
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", str(root), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=0755")
    for path in _SYSTEM:
        _show(root, path)
    for path in request["visible"]:
        _show(root, path)
    for name in _DEVICES:
        _show(root, f"/dev/{name}")
    size = request["limits"]["folder_bytes"]
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    options = f"size={size},nr_inodes=10000,mode=0777"
    kernel.mount("tmpfs", _folder(root, WORK), "tmpfs", flags, options)
    kernel.mount("proc", _folder(root, "/proc"), "proc", flags | kernel.MS_NOEXEC)
    kernel.enter_root(str(root))
    kernel.mount("none", "/", "", kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | flags)


def _folder(root: Path, path: str) -> str:
    """A new folder inside, by its outer name."""
    inner = root / path.lstrip("/")
    inner.mkdir(mode=0o755, parents=True)
    return str(inner)


def _show(root: Path, path: str) -> None:
    """Make one outer path visible, read-only, under the same name; a link stays a link."""
    outer, inner = Path(path), root / path.lstrip("/")
    if not os.path.lexists(outer) or os.path.lexists(inner):
        return
    inner.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if outer.is_symlink():
        inner.symlink_to(outer.readlink())
    elif outer.is_dir():
        kernel.bind_read_only(path, _folder(root, path))
    else:
        inner.touch(0o644)
        kernel.mount(path, str(inner), "", kernel.MS_BIND)


def _drop_uid(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(True)  # a change of uid clears it, and /proc/self would belong to root


def _map_ids(uid: int, gid: int) -> None:
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise kernel.Refused(f"writing {path}: {error.strerror}") from error


def _limit(limits: dict[str, Any]) -> None:
    """Limits of every process inside; CPU time is the judge's own, which sets that of each program."""
    judge_s = round(
        limits["cpu_s"] + max(1, limits["judge_s"])
    )  # a program's hard limit is a second above its soft one
    for name, value in (
        (resource.RLIMIT_CPU, judge_s),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_CORE, 1),  # with 0 a crash still reaches a core handler of the host that reads a pipe
    ):
        resource.setrlimit(name, (value, value))


def _null_standard_streams() -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _refuse(result_fd: int, error: Exception) -> None:
    os.write(result_fd, json.dumps({"refused": str(error)}).encode() + b"\n")

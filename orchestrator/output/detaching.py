"""`--detach`: the campaign goes on without the terminal that started it.

The process that a person started forks at once. The child is the campaign, in a session of its own, and still prints to
the terminal until its campaign has an id: what is wrong with the configuration is said where it was written. Then the
waiting process ends with 0, and the child's output goes to a file beside the campaign's log.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

_detached = False  # in the child
_waiting_fd = -1  # the child's pipe to the process that waits, until it has been told


def detach() -> int | None:
    """None in the child; in the process that waits the exit code: 0 once the campaign stands by itself."""
    global _detached, _waiting_fd
    settled_fd, _waiting_fd = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(settled_fd)
        os.setsid()
        _detached = True
        return None
    os.close(_waiting_fd)
    try:
        if os.read(settled_fd, 1):
            return 0
    except KeyboardInterrupt:
        os.kill(child, signal.SIGINT)  # in its own session no terminal reaches it
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def settle(campaign_id: str, folder: Path) -> None:
    """The campaign stands in the store: say where to find it, and let the terminal go."""
    global _waiting_fd
    if not _detached:
        return
    log = folder / "console.log"
    print(f"campaign {campaign_id} goes on by itself; its output is in {log}")
    print(f"follow it with: campaign status {campaign_id} --watch; end it with: campaign stop {campaign_id}")
    sys.stdout.flush()
    sys.stderr.flush()
    out, null = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.close(out)
    os.close(null)
    if _waiting_fd >= 0:  # else this is a later campaign of a sweep
        os.write(_waiting_fd, b"s")
        os.close(_waiting_fd)
        _waiting_fd = -1

"""What can go wrong in the control plane, and the exit code that each kind ends with.

    CampaignError
    ├── UsageError          1   unknown flag, key, arm, schedule, ID; missing file
    ├── NothingAdmissible   4   no admissible pair
    ├── WorldError          5   the machine said no
    │   ├── NoDevice            no such device, foreign process, device marked as stuck
    │   ├── LeaseTimeout        somebody else holds it
    │   ├── ServerFailed        not ready, died, did not answer in time
    │   │   └── CannotExecute   its command cannot be executed: no use in trying again
    │   ├── HelperLost          a process of our own died: nothing was wrong with the server, a new life measures again
    │   ├── RayLost             Ray itself is gone: no new life in this run, `resume` goes on
    │   ├── OutputRefused       standard output takes no more
    │   ├── StoreUnwritable     disk full, read-only, locked
    │   └── StoreUnreadable     damaged, not permitted
    └── IdentityMismatch    6   hash, tokenizer or identity mismatch, store of a newer version

The message is one sentence that names the value and the remedy: it is printed as it stands. Anything else that reaches
the command line is a bug and keeps its traceback (exit 70). A campaign that a person ended, with `campaign stop`,
SIGINT or SIGTERM, has not finished and must not look as if it had: 130 for all three, and `resume` goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `campaign`; no library's own code reaches the user."""

    COMPLETE = 0
    USAGE = 1
    SLOWER = 2
    STRICT = 3
    NOTHING_ADMISSIBLE = 4
    WORLD = 5
    IDENTITY = 6
    BUG = 70
    INTERRUPTED = 130


# When several apply the first of these wins: a mismatch makes every other statement meaningless.
_RANK = (
    Exit.INTERRUPTED,
    Exit.BUG,
    Exit.USAGE,
    Exit.IDENTITY,
    Exit.WORLD,
    Exit.NOTHING_ADMISSIBLE,
    Exit.SLOWER,
    Exit.STRICT,
    Exit.COMPLETE,
)


def highest(codes: Iterable[Exit]) -> Exit:
    """The code to return when several apply; COMPLETE when there is none."""
    return min(codes, key=_RANK.index, default=Exit.COMPLETE)


class CampaignError(Exception):
    exit_code = Exit.BUG


class UsageError(CampaignError):
    exit_code = Exit.USAGE


class NothingAdmissible(CampaignError):
    exit_code = Exit.NOTHING_ADMISSIBLE


class WorldError(CampaignError):
    exit_code = Exit.WORLD


class NoDevice(WorldError):
    pass


class LeaseTimeout(WorldError):
    pass


class ServerFailed(WorldError):
    pass


class CannotExecute(ServerFailed):
    pass


class HelperLost(WorldError):
    pass


class RayLost(WorldError):
    pass


class OutputRefused(WorldError):
    pass


class StoreUnwritable(WorldError):
    pass


class StoreUnreadable(WorldError):
    pass


class StoreWarning(UserWarning):
    """What a reader of a store must know, and that is no fault: the command line prints it as it stands."""


class IdentityMismatch(CampaignError):
    exit_code = Exit.IDENTITY

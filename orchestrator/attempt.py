"""One attempt of a startup: lease, server life, how it ended. Knows the handle that Ray gives, and the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from campaigns.errors import (
    CampaignError,
    CannotExecute,
    HelperLost,
    IdentityMismatch,
    LeaseTimeout,
    NoDevice,
    NothingAdmissible,
    RayLost,
    ServerFailed,
)
from campaigns.plan import Block
from campaigns.reasons import Reason
from campaigns.records import Failure, StartupEnd, StartupStatus
from orchestrator.life import Desk, Life
from orchestrator.servers import commanded
from orchestrator.startups.cluster import Cluster
from orchestrator.startups.startup import StartupHandle

# What ends a startup; anything else (a store that is locked, an output that is refused) interrupts it.
_REASONS: Mapping[type[CampaignError], Reason] = {
    IdentityMismatch: Reason.IDENTITY_FAIL,
    NothingAdmissible: Reason.ARM_NOT_DISTINCT,
    HelperLost: Reason.HELPER_LOST,
    RayLost: Reason.HELPER_LOST,
    NoDevice: Reason.LEASE_FAILED,
    LeaseTimeout: Reason.LEASE_FAILED,
    ServerFailed: Reason.SERVER_ERROR,
}
_TRIED_AGAIN = (ServerFailed, HelperLost)  # in a new life


def attempt(desk: Desk, cluster: Cluster, folder: Path, startup: int, number: int, missing: Sequence[Block]) -> str:
    """Says why where its server died and another may be tried; raises what no other attempt can mend."""
    campaign_id = desk.campaign.campaign_id
    workdir = folder / f"startup-{startup}-{number}"
    workdir.mkdir(parents=True, exist_ok=True)
    _require_same_files(desk)
    desk.doing(
        f"startup {startup + 1}/{desk.plan.startups}: leasing, calibrating the client ({desk.plan.calibrate_s:g} s), "
        f"starting the server (at most {desk.plan.server.ready_timeout_s:g} s)"
    )
    try:
        leased = StartupHandle.lease(cluster, desk.plan, campaign_id, startup, number, workdir, desk.view.say)
    except _TRIED_AGAIN as error:  # its host was lost before it had begun
        _note(desk, startup, number, reason_of(error), error)
        return _brief(str(error))
    with leased as handle:
        end = StartupEnd(StartupStatus.INTERRUPTED, _now(), Reason.INTERRUPTED)
        try:
            Life(desk, handle, startup, number).run(missing)
            end = StartupEnd(StartupStatus.COMPLETE, _now())
        except CampaignError as error:
            reason = reason_of(error)
            end = StartupEnd(StartupStatus.FAILED, _now(), reason, str(error))
            _note(desk, startup, number, reason, error)
            if not isinstance(error, _TRIED_AGAIN) or isinstance(error, CannotExecute):
                raise
        finally:
            desk.store.startup_end(campaign_id, startup, number, _joined(end, handle.stop()))
    return _brief(end.message)


def reason_of(error: CampaignError) -> Reason:
    """Only what a server did is the server's: a race leaves an arm out for it."""
    found = (reason for kind, reason in _REASONS.items() if isinstance(error, kind))
    return next(found, Reason.INTERRUPTED)


def _require_same_files(desk: Desk) -> None:
    """A campaign is one server: a script that was edited meanwhile would make its later lives another's."""
    now = commanded.named(commanded.files_of(desk.plan))
    changed = [name for name, sha256 in now.items() if desk.prepared.fingerprint.get(name) != sha256]
    for arm, key in ((desk.plan.control, "arm.control"), (desk.plan.candidate, "arm.candidate")):
        if arm.tree and json.loads(desk.prepared.fingerprint[key])["tree"] != commanded.tree_of(arm):
            changed.append(f"the tree of {arm.name} ({arm.tree})")
    if changed:
        names = ", ".join(name.removeprefix("server.file.") for name in changed)
        raise IdentityMismatch(
            f"{names} changed since the campaign began, and the servers to come would be others than those before: "
            "bring back what it was and resume, or start a new campaign (what a server writes belongs below {workdir})"
        )


def _brief(message: str) -> str:
    """One line of what may end with a server's log: its first, and the log's last two, which most often say why."""
    first, *log = message.splitlines() or [""]
    why = "; ".join(line.strip().rstrip(".") for line in log[-2:])
    return f"{first.rstrip('.:')}: {why}" if log else first.rstrip(".")


def _joined(measured: StartupEnd, stopped: StartupEnd) -> StartupEnd:
    """How the startup ended: by what happened while it measured, else by what its stop left behind."""
    if measured.status is StartupStatus.COMPLETE:
        return stopped
    return replace(measured, survivors=stopped.survivors, ended_utc=stopped.ended_utc)


def _note(desk: Desk, startup: int, attempt: int, reason: Reason, error: Exception) -> None:
    desk.store.failure(Failure(desk.campaign.campaign_id, _now(), reason, str(error), startup, attempt))
    desk.journal.write("startup failed", startup=startup, attempt=attempt, message=str(error))
    desk.view.say(f"startup {startup + 1}, attempt {attempt}: {error}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

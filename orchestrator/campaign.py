"""The loop: plan minus recorded -> lease -> startup -> pairs -> store.

State lives in the plan (frozen), the store (append only) and the handle of the running server. Whatever kills this
process loses at most the block in flight; `resume` runs the same loop over what is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from campaigns.errors import (
    CampaignError,
    CannotExecute,
    Exit,
    HelperLost,
    IdentityMismatch,
    NothingAdmissible,
    RayLost,
    ServerFailed,
    StoreUnwritable,
    UsageError,
)
from campaigns.judging.verdicts import counted
from campaigns.plan import Block, CampaignPlan, blocks, pair_keys, several_changes
from campaigns.provenance import differing_keys
from campaigns.records import Campaign, CampaignStatus, Failure, Reason, StartupEnd, StartupStatus
from orchestrator import detaching, terminal
from orchestrator.journal import Journal, keeping
from orchestrator.life import Desk, Life
from orchestrator.preparation import commanded
from orchestrator.preparation.pinning import pin_prompts
from orchestrator.preparation.prepare import Prepared, prepare_again
from orchestrator.progress import ANSWER, Output, View
from orchestrator.startups.cluster import Cluster, connect
from orchestrator.startups.stand import starts_servers
from orchestrator.startups.startup import StartupHandle
from results.history.status import n_of_open_blocks
from results.reading.summary import summarise
from results.reports.headline import headline
from results.reports.report import render_summary
from results.store.reader import Reader
from results.store.writer import Store

# What ends a startup; anything else is the server's.
_REASONS = {
    IdentityMismatch: Reason.IDENTITY_FAIL,
    NothingAdmissible: Reason.ARM_NOT_DISTINCT,
    HelperLost: Reason.HELPER_LOST,
    RayLost: Reason.HELPER_LOST,
}
_TRIED_AGAIN = (ServerFailed, HelperLost)  # in a new life


class Stopped(Exception):
    """The operator asked for the end; the running pair was finished."""


def execute(prepared: Prepared, output: Output = ANSWER) -> Exit:
    """Run a new campaign to its end; returns the exit code of its result, INTERRUPTED where it was told to end."""
    with Store.open(prepared.store_path) as store:
        pin_prompts(store, prepared)
        campaign = prepared.campaign()
        store.begin(campaign)
        return _drive(store, campaign, prepared, output)


def resume(store_path: Path, campaign_id: str, output: Output = ANSWER, *, strict: bool) -> Exit:
    """Run what is missing of a recorded campaign; refuses when its fingerprint has changed."""
    with Reader.open(store_path) as reader:
        campaign = reader.campaign(reader.resolve(campaign_id))
        source = reader.imported_from(campaign.campaign_id)
    if source:
        raise UsageError(
            f"campaign {campaign.campaign_id} was imported from {source}, and its configuration may name commands of "
            "others: resume it in the store that it was measured in, or start a campaign of your own"
        )
    prepared = replace(prepare_again(campaign.config_json), store_path=store_path, strict=strict)
    changed = differing_keys(campaign.fingerprint, prepared.fingerprint)
    if changed:
        raise IdentityMismatch(
            f"campaign {campaign.campaign_id} cannot be resumed: {', '.join(changed)} changed since it began; "
            f"{_as_it_began(campaign)}, or start a new campaign"
        )
    with Store.open(store_path) as store:
        pin_prompts(store, prepared)
        return _drive(store, campaign, prepared, output)


def _as_it_began(campaign: Campaign) -> str:
    """The remedy: a hash does not tell which files changed, the commit tells which there were."""
    git = campaign.provenance.get("git") or {}
    if not git.get("git_commit"):
        return "bring back the code, checkpoint and host that it began with"
    edited = " with the edits that were not committed" if git.get("dirty_diff_sha256") else ""
    return f"check out the commit it began with ({git['git_commit'][:12]}{edited}), on the host it began on"


def outputs_folder(store_path: Path, campaign_id: str) -> Path:
    """Log and server folders of a campaign lie beside the store."""
    return store_path.parent / campaign_id


def request_stop(store_path: Path, campaign_id: str, reason: str, *, after_block: bool = False) -> str:
    """Ask the running driver to end after its current pair, or block: an authorised stop, not a failure."""
    with Reader.open(store_path) as reader:
        name = reader.resolve(campaign_id)
        status = reader.status(name)
        open_pairs = n_of_open_blocks(reader, name)
    if status is not CampaignStatus.RUNNING:
        raise UsageError(f"campaign {name} is {status}, not running: there is nothing to stop")
    request = outputs_folder(store_path, name) / (_STOP_AFTER_BLOCK if after_block else _STOP)
    try:
        request.write_text(reason)
    except OSError as error:
        raise StoreUnwritable(f"{request} cannot be written ({error.strerror}): ask the campaign's owner") from error
    if after_block:
        return f"campaign {name} will end after its current block; no finished pair is lost"
    lost = f"{counted(open_pairs, 'finished pair')} of its block and the current one will be measured again by resume"
    none = f"campaign stop {name} --after-block loses none"
    return f"campaign {name} will end after its current pair{f'; {lost} ({none})' if open_pairs else ''}"


_STOP, _STOP_AFTER_BLOCK = "stop", "stop-after-block"


def _drive(store: Store, campaign: Campaign, prepared: Prepared, output: Output) -> Exit:
    folder = outputs_folder(prepared.store_path, campaign.campaign_id)
    with keeping(folder):
        return _drive_in(folder, store, campaign, prepared, output)


def _drive_in(folder: Path, store: Store, campaign: Campaign, prepared: Prepared, output: Output) -> Exit:
    folder.mkdir(parents=True, exist_ok=True)
    detaching.settle(campaign.campaign_id, folder)
    view = View(output.console(), len(pair_keys(prepared.plan)), store.recorded(campaign.campaign_id).pairs)
    name = f"{campaign.campaign_id} ({campaign.name})"
    for request in (_STOP, _STOP_AFTER_BLOCK):
        (folder / request).unlink(missing_ok=True)  # one that an earlier life did not live to see
    view.say(f"campaign {name}: {view.done} of {view.total} pairs recorded; log in {folder}")
    view.say(_compared(prepared.plan))
    with Journal(folder) as journal:
        desk = Desk(store, campaign, prepared, journal, view, partial(_stop_if_asked, folder))
        try:
            with keeping(folder):
                _run(desk, folder)
        except Stopped as stop:
            store.status(campaign.campaign_id, CampaignStatus.HELD, str(stop))
            _conclude(prepared, campaign.campaign_id, output, view)
            view.say(f"held: {stop}; go on with: campaign resume {campaign.campaign_id}")
            return Exit.INTERRUPTED
        except KeyboardInterrupt:
            store.status(campaign.campaign_id, CampaignStatus.INTERRUPTED, "interrupted from the keyboard")
            view.say(f"interrupted; go on with: campaign resume {campaign.campaign_id}")
            return Exit.INTERRUPTED
        except Exception as error:
            told = str(error) if isinstance(error, CampaignError) else f"a bug: {error!r}"
            store.status(campaign.campaign_id, CampaignStatus.FAILED, told)
            raise
        else:
            store.status(campaign.campaign_id, CampaignStatus.COMPLETE)
    return _conclude(prepared, campaign.campaign_id, output, view)


def _compared(plan: CampaignPlan) -> str:
    """The arms and what differs between them: what was changed is what was meant."""
    changes = "; ".join(plan.differences) or "equal arms"
    line = f"{plan.candidate.name} against {plan.control.name}: {changes}"
    several = several_changes(plan.control, plan.candidate)
    return f"{line}\nwarning: {several}" if several else line


def _conclude(prepared: Prepared, campaign_id: str, output: Output, view: View) -> Exit:
    """The answer, or the whole report, on standard output; the report beside the log as well."""
    with Reader.open(prepared.store_path) as reader:
        summary = summarise(reader, campaign_id)
        told = render_summary(summary, reader, output.format) if output.format else headline(summary).text
        file = outputs_folder(prepared.store_path, campaign_id) / "report.md"
        file.write_text(render_summary(summary, reader, "md"), encoding="utf-8")
    view.say(f"report: {file}, or: campaign report {campaign_id} --format html")
    shown = terminal.Lasting(sys.stdout)
    shown.write(told)
    shown.flush()
    return summary.exit_code(strict=prepared.strict)


def _run(desk: Desk, folder: Path) -> None:
    desk.store.status(desk.campaign.campaign_id, CampaignStatus.RUNNING)
    lost = _lost(desk)  # in an earlier run: measured again, once
    if any(_missing(desk, startup, lost) for startup in range(desk.plan.startups)):  # else no device is needed
        ray = desk.plan.lease.ray_address
        desk.doing(f"joining Ray at {ray}" if ray else "starting Ray: some ten seconds, more on a busy host")
        with connect(desk.plan.lease) as cluster, desk.view.shown():
            for startup in range(desk.plan.startups):
                _run_startup(desk, cluster, folder, startup, lost)
    if lost := _lost(desk):
        raise ServerFailed(
            f"no pair of {', '.join(sorted(lost))} was answered, its report lists the failures: mend the server or the "
            f"prompts, then: campaign resume {desk.campaign.campaign_id}"
        )


def _run_startup(desk: Desk, cluster: Cluster, folder: Path, startup: int, lost: frozenset[str]) -> None:
    tries = desk.plan.server.retries + 1
    for trial in range(tries):
        missing = _missing(desk, startup, lost if trial == 0 else frozenset())
        death = _live(desk, cluster, folder, startup, missing) if missing else ""
        if not death:
            return  # else the server died: what is still missing gets a new life
    raise ServerFailed(
        f"startup {startup + 1} died in {tries} attempts, in the last one because: {death}"
        + (f"; the servers' logs are in {folder}" if starts_servers(desk.plan) else "")
    )


def _missing(desk: Desk, startup: int, lost: frozenset[str]) -> list[Block]:
    recorded, plan = desk.store.recorded(desk.campaign.campaign_id), desk.plan
    return [b for b in blocks(plan, startup) if not recorded.holds(b) or _group(plan, b.fixture) in lost]


def _lost(desk: Desk) -> frozenset[str]:
    """Fixtures (datasets of a corpus) all of whose recorded pairs failed: a campaign without them is not complete."""
    recorded, plan = desk.store.recorded(desk.campaign.campaign_id), desk.plan
    failed, answered = (
        {_group(plan, key.fixture) for key in keys} for keys in (recorded.failed, recorded.pairs - recorded.failed)
    )
    return frozenset(failed - answered)


def _group(plan: CampaignPlan, fixture_id: str) -> str:
    return plan.fixture(fixture_id).dataset if plan.corpus else fixture_id


def _live(desk: Desk, cluster: Cluster, folder: Path, startup: int, missing: Iterable[Block]) -> str:
    """One attempt of a startup; says why where its server died and another may be tried."""
    campaign_id = desk.campaign.campaign_id
    attempt = desk.store.recorded(campaign_id).next_startup_attempt(startup)
    workdir = folder / f"startup-{startup}-{attempt}"
    workdir.mkdir(parents=True, exist_ok=True)
    _require_same_files(desk)
    desk.doing(
        f"startup {startup + 1}/{desk.plan.startups}: leasing, calibrating the client ({desk.plan.calibrate_s:g} s), "
        f"starting the server (at most {desk.plan.server.ready_timeout_s:g} s)"
    )
    with StartupHandle.lease(cluster, desk.plan, campaign_id, startup, attempt, workdir, desk.view.say) as handle:
        end = StartupEnd(StartupStatus.INTERRUPTED, _now(), Reason.INTERRUPTED)
        try:
            Life(desk, handle, startup, attempt).run(list(missing))
            end = StartupEnd(StartupStatus.COMPLETE, _now())
        except CampaignError as error:
            reason = _REASONS.get(type(error), Reason.SERVER_ERROR)
            end = StartupEnd(StartupStatus.FAILED, _now(), reason, str(error))
            _note(desk, startup, attempt, reason, error)
            if not isinstance(error, _TRIED_AGAIN) or isinstance(error, CannotExecute):
                raise
        finally:
            desk.store.startup_end(campaign_id, startup, attempt, _joined(end, handle.stop()))
    return _brief(end.message)


def _require_same_files(desk: Desk) -> None:
    """A campaign is one server: a script that was edited meanwhile would make its later lives another's."""
    now = commanded.named(commanded.files_of(desk.plan))
    changed = [name for name, sha256 in now.items() if desk.prepared.fingerprint.get(name) != sha256]
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


def _stop_if_asked(folder: Path, block_is_done: bool) -> None:
    for name in (_STOP, _STOP_AFTER_BLOCK) if block_is_done else (_STOP,):
        request = folder / name
        if request.exists():
            reason = request.read_text()
            request.unlink()
            raise Stopped(reason)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

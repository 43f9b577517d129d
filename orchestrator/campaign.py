"""A campaign from its beginning to its answer: recorded, driven by the loop, concluded.

State lives in the plan (frozen), the store (append only) and the handles of the running servers. Whatever kills this
process loses at most the blocks in flight; `resume` runs the same loop over what is missing.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from campaigns.errors import CampaignError, Exit, IdentityMismatch, UsageError
from campaigns.plan import CampaignPlan, several_changes
from campaigns.provenance import differing_keys
from campaigns.records import Campaign, CampaignStatus
from orchestrator import loop
from orchestrator.deciding import record
from orchestrator.life import Desk
from orchestrator.output import detaching, terminal
from orchestrator.output.journal import Journal, keeping, outputs_folder
from orchestrator.output.progress import ANSWER, Output, View
from orchestrator.preparation.pinning import pin_prompts
from orchestrator.preparation.prepare import Prepared, prepare_again
from orchestrator.stopping import Stopped, Stopping
from results.reading.summary import summarise
from results.reports.headline import headline
from results.reports.report import render_summary
from results.store.reader import Reader
from results.store.writer import Store


def execute(prepared: Prepared, output: Output = ANSWER, campaign: Campaign | None = None) -> Exit:
    """Run a new campaign to its end; returns the exit code of its result, INTERRUPTED where it was told to end.

    `campaign` is its record where somebody must know its id before.
    """
    with Store.open(prepared.store_path) as store:
        pin_prompts(store, prepared)
        campaign = campaign or prepared.campaign()
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


def _drive(store: Store, campaign: Campaign, prepared: Prepared, output: Output) -> Exit:
    folder = outputs_folder(prepared.store_path, campaign.campaign_id)
    with keeping(folder):
        return _drive_in(folder, store, campaign, prepared, output)


def _drive_in(folder: Path, store: Store, campaign: Campaign, prepared: Prepared, output: Output) -> Exit:
    folder.mkdir(parents=True, exist_ok=True)
    detaching.settle(campaign.campaign_id, folder)
    view = View(output.console(), prepared.plan, store.recorded(campaign.campaign_id).pairs)
    name = f"{campaign.campaign_id} ({campaign.name})"
    view.say(f"campaign {name}: {view.done} of {view.total} pairs recorded; log in {folder}")
    view.say(_compared(prepared.plan))
    with Journal(folder) as journal:
        desk = Desk(store, campaign, prepared, journal, view)
        try:
            with keeping(folder):
                why = loop.run(desk, folder, Stopping(folder))
        except Stopped as stop:
            store.status(campaign.campaign_id, CampaignStatus.HELD, str(stop))
            _conclude(store, prepared, campaign.campaign_id, output, view)
            view.say(f"held: {stop}; go on with: campaign resume {campaign.campaign_id}")
            return Exit.INTERRUPTED
        except KeyboardInterrupt as signalled:
            told = f"interrupted by {str(signalled) or 'SIGINT, the keyboard'}"
            store.status(campaign.campaign_id, CampaignStatus.INTERRUPTED, told)
            view.say(f"interrupted; go on with: campaign resume {campaign.campaign_id}")
            return Exit.INTERRUPTED
        except Exception as error:
            told = str(error) if isinstance(error, CampaignError) else f"a bug: {error!r}"
            store.status(campaign.campaign_id, CampaignStatus.FAILED, told)
            raise
        else:
            store.status(campaign.campaign_id, CampaignStatus.COMPLETE, why)
            if why:
                view.say(f"decided: {why}")
    return _conclude(store, prepared, campaign.campaign_id, output, view)


def _compared(plan: CampaignPlan) -> str:
    """The arms and what differs between them: what was changed is what was meant."""
    changes = "; ".join(plan.differences) or "equal arms"
    line = f"{plan.candidate.name} against {plan.control.name}: {changes}"
    several = several_changes(plan.control, plan.candidate)
    return f"{line}\nwarning: {several}" if several else line


def _conclude(store: Store, prepared: Prepared, campaign_id: str, output: Output, view: View) -> Exit:
    """The answer, or the whole report, on standard output; the report beside the log as well."""
    with Reader.open(prepared.store_path) as reader:
        summary = summarise(reader, campaign_id)
        record(store, summary)
        told = render_summary(summary, reader, output.format) if output.format else headline(summary).text
        file = outputs_folder(prepared.store_path, campaign_id) / "report.md"
        file.write_text(render_summary(summary, reader, "md"), encoding="utf-8")
    if traces := sorted(file.parent.rglob("trace-*.json")):
        view.say("Chrome traces (chrome://tracing, ui.perfetto.dev): " + ", ".join(map(str, traces)))
    view.say(f"report: {file}, or: campaign report {campaign_id} --format html")
    shown = terminal.Lasting(sys.stdout)
    shown.write(told)
    shown.flush()
    return summary.exit_code(strict=prepared.strict)

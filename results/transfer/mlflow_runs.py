"""A campaign as a run of MLflow, in its SQLite backend: no server is asked. docs/history.md says what is where.

Names of metrics are those of `history`, with the fixture behind a slash; a startup's effect is a step of one metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from campaigns.errors import UsageError
from campaigns.judging.statistics import percent
from campaigns.records import CampaignStatus
from results.reading.summary import Summary
from results.store.reader import Reader

ID = "campaign_id"
_STATUS = {
    CampaignStatus.RUNNING: "RUNNING",
    CampaignStatus.COMPLETE: "FINISHED",
    CampaignStatus.FAILED: "FAILED",
    CampaignStatus.HELD: "KILLED",
    CampaignStatus.INTERRUPTED: "KILLED",
}


@dataclass(frozen=True)
class Written:
    """What reports say of the campaign, who know how."""

    sentence: str
    changed: str
    files: Mapping[str, str]


def export_run(reader: Reader, summary: Summary, written: Written, file: Path, *, force: bool = False) -> str:
    """The id of the new run in `file`, which is made where it is not there. `force` replaces an earlier export."""
    client = _client(file)
    campaign_id, name = summary.campaign.campaign_id, summary.campaign.name
    experiment = client.get_experiment_by_name(name)
    known = experiment.experiment_id if experiment else client.create_experiment(name, _artifacts(file))
    earlier = client.search_runs([known], f"tags.{ID} = '{campaign_id}'")
    if earlier and not force:
        raise UsageError(f"--output {file} has campaign {campaign_id} already: replace its run with --force")
    begun = _ms(summary.campaign.created_utc)
    run = client.create_run(known, begun, dict(_tags(summary, written)), campaign_id).info.run_id
    for key, value in _params(summary, written):
        client.log_param(run, key, value)
    for key, number, step in _metrics(summary):
        client.log_metric(run, key, number, begun, step)
    for path, text in written.files.items():
        client.log_text(run, text, path)
    events = reader.status_history(campaign_id)
    client.set_terminated(run, _STATUS[summary.status], _ms(events[-1].utc) if events else begun)
    for old in earlier:  # only now: a failed export loses nothing
        client.delete_run(old.info.run_id)
    return str(run)


def _client(file: Path) -> Any:
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise UsageError("MLflow needs mlflow-skinny: pip install 'dflash2-campaigns[mlflow]'") from error
    if not file.parent.is_dir():
        raise UsageError(f"--output {file}: there is no folder {file.parent}")
    if file.is_dir():
        raise UsageError(f"--output {file} is a folder: name the file of MLflow's SQLite backend")
    if file.is_file() and file.stat().st_size and not file.read_bytes()[:15] == b"SQLite format 3":
        raise UsageError(f"--output {file} is no SQLite file: name another one")
    return MlflowClient(f"sqlite:///{file.absolute()}")


def _artifacts(file: Path) -> str:
    return f"{file.absolute()}-artifacts"


def _ms(utc: str) -> int:
    return int(datetime.fromisoformat(utc).timestamp() * 1000)


def _tags(summary: Summary, written: Written) -> Iterator[tuple[str, str]]:
    git, host = (summary.campaign.provenance.get(part) or {} for part in ("git", "host"))
    yield ID, summary.campaign.campaign_id
    yield "mlflow.note.content", written.sentence
    yield "verdict", summary.verdict.value
    yield "evidence", summary.evidence.value
    yield "tags", ", ".join(summary.tags)
    if git.get("git_commit"):
        yield "mlflow.source.git.commit", str(git["git_commit"])
    if host.get("name"):
        yield "host", str(host["name"])


def _params(summary: Summary, written: Written) -> Iterator[tuple[str, Any]]:
    plan = summary.plan
    yield from ((role, plan[role]["name"]) for role in ("control", "candidate"))
    yield from ((key, plan[key]) for key in ("mode", "order", "startups", "pairs", "seed"))
    yield "changed", written.changed or "nothing"
    yield "model", plan["server"]["model"] or plan["server"]["adapter"]
    yield "methodology_version", summary.campaign.methodology_version


def _metrics(summary: Summary) -> Iterator[tuple[str, float, int]]:
    judged = {"campaign": summary.judgement} | {group.id: group.judgement for group in summary.groups}
    for fixture, judgement in judged.items():
        interval, floor = judgement.interval, judgement.floor
        logs = {
            "effect_pct": judgement.effect,
            "ci_low_pct": interval.low if interval else None,
            "ci_high_pct": interval.high if interval else None,
            "noise_floor_pct": floor.value if floor else None,
        }
        yield from ((_key(name, fixture), percent(log), 0) for name, log in logs.items() if log is not None)
        yield _key("n_pairs", fixture), judgement.n_pairs, 0
        for startup, log in judgement.startup_medians.items():
            yield _key("startup_effect_pct", fixture), percent(log), startup
    for group in summary.groups:
        levels = {"control_ms": group.control.level_ms, "candidate_ms": group.candidate.level_ms}
        yield from ((_key(name, group.id), level, 0) for name, level in levels.items() if level is not None)
    yield "n_exact_pairs", summary.n_exact_pairs, 0


def _key(name: str, fixture: str) -> str:
    """MLflow takes letters, digits and a few signs."""
    return f"{name}/{re.sub(r'[^A-Za-z0-9_. -]', '_', fixture)}"

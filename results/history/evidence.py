"""What the store holds about one subject, as the gates want it. The subject is `operator/schedule` or an arm's name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from campaigns.judging.gates import Evidence, Result
from campaigns.judging.statistics import percent
from campaigns.remarks import Probe
from results.conditions.profiles import is_profiled
from results.reading.curve import curve_of
from results.reading.past import family
from results.reading.summary import Summary, summarise
from results.store.reader import Reader
from results.store.unchanged import set_changed_aside

_LIFE = ("env", "args", "tree")  # of an arm, beside its schedules


def evidence(reader: Reader, subject: str, library_sha256: str = "") -> Evidence:
    """Of the library that is named, else of the one that the newest probe is about."""
    probes = tuple(sorted((p for p in reader.probes() if p.subject == subject), key=lambda probe: probe.utc))
    return Evidence(
        subject=subject,
        library_sha256=library_sha256 or _newest_library(probes),
        probes=probes,
        results=tuple(_results(reader, subject)),
        decisions=tuple(decision for decision in reader.decisions() if decision.subject == subject),
    )


def _results(reader: Reader, subject: str) -> Iterator[Result]:
    about = [campaign for campaign in reader.campaigns() if _about(campaign.plan_json, subject)]
    set_changed_aside(reader, [campaign.campaign_id for campaign in about])
    for campaign in about:
        if campaign.campaign_id not in reader.damaged:
            with reader.damaged.sparing(campaign.campaign_id):
                yield _result(summarise(reader, campaign.campaign_id), subject)


def _newest_library(probes: tuple[Probe, ...]) -> str:
    return next((probe.library_sha256 for probe in reversed(probes) if probe.library_sha256), "")


def _about(plan_json: str, subject: str) -> bool:
    """Whether the candidate is, or enables, the subject and the control does not."""
    plan = json.loads(plan_json)
    if is_profiled(plan):
        return False
    return plan["mode"] == "ab" and _enables(plan["candidate"], subject) and not _enables(plan["control"], subject)


def _enables(arm: Mapping[str, Any], subject: str) -> bool:
    return bool(arm["name"] == subject or subject in {f"{operator}/{name}" for operator, name in arm["schedules"]})


def _together(plan: Mapping[str, Any], subject: str) -> tuple[str, ...]:
    """What else the arms differ in where the subject is a schedule: of other operators, environment, arguments."""
    control, candidate = plan["control"], plan["candidate"]
    if candidate["name"] == subject:
        return ()
    before, after = dict(map(tuple, control["schedules"])), dict(map(tuple, candidate["schedules"]))
    others = sorted((before.keys() | after.keys()) - {subject.partition("/")[0]})
    changed = [f"{op}/{after.get(op, 'default')}" for op in others if before.get(op) != after.get(op)]
    return (*changed, *(part for part in _LIFE if control.get(part) != candidate.get(part)))


def _result(summary: Summary, subject: str) -> Result:
    control = summary.plan["control"]
    arms = [arm for group in summary.groups for arm in (group.control, group.candidate)]
    return Result(
        campaign_id=summary.campaign.campaign_id,
        status=summary.status,
        n_startups=summary.judgement.n_startups,
        n_planned=summary.n_planned,
        n_pairs=summary.n_pairs,
        n_exact_pairs=summary.n_exact_pairs,
        verdict=summary.verdict,
        n_cases=len(summary.plan["fixtures"]) if summary.plan["corpus"] else 0,
        n_answers=sum(arm.n_requests for arm in arms),
        n_capped=sum(arm.n_capped for arm in arms),
        control_is_plain=not any(control.get(part) for part in ("schedules", "speculation", *_LIFE)),
        family=_build(summary.campaign.fingerprint),
        curve=curve_of(summary.groups),
        ci_high_pct=percent(summary.judgement.interval.high) if summary.judgement.interval else None,
        together=_together(summary.plan, subject),
    )


def _build(fingerprint: Mapping[str, str]) -> dict[str, str]:
    """Host, weights and the measured code; how a campaign was laid out may differ between gates."""
    free = ("server.args", "server.env", "order", "startup_mode", "sampling.")
    return {name: value for name, value in family(fingerprint).items() if not name.startswith(free)}

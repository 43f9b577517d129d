"""The report as JSON. Names are stable within a `schema_version`; what is unknown is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from campaigns.judging.components import Component
from campaigns.judging.quantiles import METHOD, Quantile
from campaigns.judging.statistics import MAX_STARTUPS_EXACT, RESAMPLES, Interval, NoiseFloor, percent
from campaigns.judging.verdicts import Judgement
from campaigns.plan import differences
from campaigns.printable import json_text
from campaigns.remarks import Score
from results.conditions.schedules import ArmRoute
from results.reading.groups import Group
from results.reading.levels import ArmLevels, Source
from results.reading.summary import Summary, bound
from results.reports.headline import arms, headline
from results.reports.tables.cells import verdict
from results.reports.tables.corpora import scores as score_table
from results.store.reader import Life

SCHEMA_VERSION = 1


def report_json(summary: Summary, scores: Sequence[Score] = ()) -> str:
    return json_text(content(summary, scores), indent=2) + "\n"


def content(summary: Summary, scores: Sequence[Score] = ()) -> dict[str, Any]:
    campaign = summary.campaign
    return {
        "schema_version": SCHEMA_VERSION,
        "methodology_version": campaign.methodology_version,
        "campaign_id": campaign.campaign_id,
        "config_hash": campaign.config_sha256,
        "name": campaign.name,
        "created_utc": campaign.created_utc,
        "status": summary.status.value,
        "status_reason": summary.status_reason,
        "tags": list(summary.tags),
        "campaign_notes": list(summary.notes),
        "mode": summary.plan["mode"],
        "stop": summary.plan.get("stop", "planned"),
        "n_seen_startups": summary.n_seen,
        "looks": [
            {"n_seen": look.n_seen, "utc": look.utc, "verdict": look.verdict, "decided": look.decided}
            for look in summary.looks
        ],
        "order": summary.plan["order"],
        "startup_mode": summary.plan["startup_mode"],
        "arms": {role: summary.plan[role]["name"] for role in ("control", "candidate")},
        "evidence": summary.evidence.value,
        "verdict": summary.verdict.value,
        "answer": headline(summary).sentence,
        "warnings": list(headline(summary).warnings),
        "changed": list(differences(*arms(summary))),
        **judged(summary.judgement),
        "n_planned_pairs": summary.n_planned,
        "n_pairs": summary.n_pairs,
        "n_exact_pairs": summary.n_exact_pairs,
        "n_admissible_pairs": summary.n_admissible_pairs,
        "n_inexact_pairs": summary.n_inexact_pairs,
        "n_failed_pairs": summary.n_failed_pairs,
        "n_excluded": summary.n_excluded,
        "exclusions": dict(summary.exclusions),
        "schedules": [_schedule(found) for found in summary.schedules],
        "n_superseded_requests": summary.n_superseded,
        "superseded": list(summary.superseded),
        "required_exactness": f"E{int(summary.required_exactness)}",
        "mismatch_bound": bound(summary),
        "resolution_ms": summary.resolution_ms,
        "round_source": _round_source(summary.source),
        "scopes": {"level": summary.source.request.value, "rounds": summary.source.round.value},
        "quantile_method": METHOD,
        "startups": [_life(life) for life in summary.lives],
        "fixtures": [_group(group, summary.source) for group in summary.groups],
        "changes": [change(group) for group in summary.groups],
        "profiled": summary.profiled,
        "where_a_round_goes": _profile(summary),
        "scores": _scores(scores),
        "devices": vars(summary.occupancy) | {"changes": list(summary.occupancy.changes)},
        "energy": summary.energy,
        "client_clock": None if summary.clock is None else vars(summary.clock),
        "neighbours": list(summary.neighbours),
        "between_devices": {
            "n_hosts": summary.whereabouts.n_hosts,
            "n_devices": summary.whereabouts.n_devices,
            "effect": _component(summary.whereabouts.effect),
            "control_level": _component(summary.whereabouts.level),
        },
        "host_load": None if summary.load is None else vars(summary.load),
        "restart_determinism": [vars(arm) | {"differing": list(arm.differing)} for arm in summary.determinism],
        "differing": [vars(pair) | {"what": list(pair.what)} for pair in summary.differing],
        "speculation": [vars(arm) for arm in summary.speculation],
        "missing": list(summary.missing),
        "left_out_of_floors": list(summary.left_out),
        "flags": dict(summary.flags),
        "pair_flags": dict(summary.pair_flags),
        "failed_gates": list(summary.failed_gates),
        "failures": [
            {"utc": f.utc, "reason": f.reason.value, "message": f.message, "startup_index": f.startup}
            for f in summary.failures
        ],
        "fingerprint": dict(campaign.fingerprint),
    }


def _profile(summary: Summary) -> list[dict[str, Any]]:
    """A row per fixture, arm, piece and operator, over all profiled rounds of that arm."""
    return [
        {
            "fixture_id": name,
            "role": role.value,
            "rounds": arm.rounds,
            "round_ns": arm.round_ns,
            "clock": ", ".join(sorted(arm.clocks)),
            "piece": piece,
            "operator": operator,
            "schedules": sorted(share.schedules),
            "calls": share.calls,
            "launches": share.launches,
            "total_ns": share.total_ns,
        }
        for name, arms in summary.profiles.items()
        for role, arm in arms.items()
        for (piece, operator), share in arm.shares.items()
    ]


def judged(judgement: Judgement) -> dict[str, Any]:
    """The verdict's numbers, in percent."""
    interval, contrast = judgement.interval, judgement.contrast
    return {
        "because": judgement.because,
        "effect_pct": _pct(judgement.effect),
        "ci_low_pct": _pct(interval.low if interval else None),
        "ci_high_pct": _pct(interval.high if interval else None),
        "ci_method": interval.method if interval else None,
        "ci_90_pct": _bounds(judgement.interval_90),
        "bootstrap_pct": _bounds(judgement.bootstrap),
        "ci_deciding_pct": _bounds(judgement.adjusted or interval),
        "ci_deciding_level": None if interval is None else (judgement.adjusted or interval).level,
        "look": judgement.look,
        "p_sign_flip": judgement.p,
        "p_sign_flip_method": _flips(judgement),
        "n_startups": judgement.n_startups,
        "startup_effects_pct": {str(s): _pct(m) for s, m in judgement.startup_medians.items()},
        "noise_floor_pct": _pct(judgement.floor.value if judgement.floor else None),
        "noise_floor_bounds_pct": _both_sides(judgement.floor),
        "noise_floor_source": judgement.floor.source if judgement.floor else None,
        "bands_pct": _pct(judgement.bands),
        "notes": list(judgement.notes),
        "order_contrast_pct": _pct(contrast.value if contrast else None),
        "order_contrast_p": contrast.p if contrast else None,
        "order_imbalance": contrast.imbalance if contrast else None,
    }


def change(group: Group) -> dict[str, Any]:
    """One row of the change table."""
    return {
        "fixture_id": group.id,
        "metric": "complete_round_ms",
        "effect_metric": "decode_time" if group.n_unequal_rounds else "complete_round_ms",
        "control": group.control.level_ms,
        "candidate": group.candidate.level_ms,
        "delta_ms": group.delta_ms,
        "level_ratio": group.level_ratio,
        "effect_pct": _pct(group.judgement.effect),
        "verdict": group.judgement.verdict.value,
        "sign": verdict(group.judgement).split()[0],
    }


def _group(group: Group, source: Source) -> dict[str, Any]:
    return {
        "fixture_id": group.id,
        "seed": group.seed,
        "n_pairs": group.n_pairs,
        "n_prompts": group.n_prompts,
        "n_exact_pairs": group.n_exact_pairs,
        "n_admissible_pairs": group.n_admissible_pairs,
        "n_excluded": group.n_pairs - group.n_admissible_pairs,
        "evidence": group.judgement.evidence.value,
        "verdict": group.judgement.verdict.value,
        **judged(group.judgement),
        "p_holm": group.p_holm,
        "level_ratio": group.level_ratio,
        "delta_ms": group.delta_ms,
        "settle_drift_pct": {str(s): _pct(d) for s, d in group.settle_drift.items()},
        "candidate_settle_drift_pct": {str(s): _pct(d) for s, d in group.candidate_settle_drift.items()},
        "control_drift_pct": _pct(group.control_drift),
        "candidate_drift_pct": _pct(group.candidate.drift),
        "repeat_trend_pct": {
            server: {str(s): _pct(d) for s, d in trends.items()} for server, trends in group.repeats.items()
        },
        "n_outliers": group.n_outliers,
        "n_unequal_rounds": group.n_unequal_rounds,
        "divergences": list(group.divergences),
        "control": _arm(group.control, source),
        "candidate": _arm(group.candidate, source),
    }


def _arm(arm: ArmLevels, source: Source) -> dict[str, Any]:
    average, single = source.request.column, source.round.column
    return {
        "n_requests": arm.n_requests,
        f"{average}_ms": arm.level_ms,
        "startup_levels_ms": {str(s): ms for s, ms in arm.startup_levels_ms.items()},
        f"{average}_quantiles_ms": _quantiles(arm.request_averages),
        f"{single}_quantiles_ms": _quantiles(arm.rounds),
        "ttft_ms": arm.ttft_ms,
        "cold_ttft_ms": arm.cold_ttft_ms,
        "prefill_ms": arm.prefill_ms,
        f"{source.decode_column}": arm.decode_tokens_per_s,
        "energy_per_request_j": arm.energy_per_request_j,
        "energy_per_token_j": arm.energy_per_token_j,
        "accepted_drafts_per_round": arm.accepted_drafts_per_round,
        "emitted_tokens_per_round": arm.emitted_tokens_per_round,
        "drafted_per_round": arm.drafted_per_round,
        "acceptance_length": arm.acceptance_length,
        "acceptance_length_macro": arm.acceptance_length_macro,
        "draft_acceptance_rate": arm.draft_acceptance_rate,
        "acceptance_histogram": list(arm.acceptance_histogram),
        "per_position_acceptance_rates": list(arm.per_position_rates),
        "conditional_acceptance_rates": list(arm.conditional_rates),
        "n_capped": arm.n_capped,
        "completion_tokens": list(arm.completion_tokens),
        "residuals": list(arm.residuals),
    }


def _schedule(found: ArmRoute) -> dict[str, Any]:
    refusals = [{"reason": reason, "calls": calls} for reason, calls in found.route.refusals.items()]
    named = {"role": found.role.value, "arm": found.arm, "schedule": found.route.name}
    return {**named, "asked": found.asked, "hits": found.route.hits, "refusals": refusals}


def _life(life: Life) -> dict[str, Any]:
    start, end, calibration = life.startup, life.end, life.startup.calibration
    return {
        "startup_index": start.startup,
        "attempt": start.attempt,
        "role": start.role.value if start.role else None,
        "status": end.status.value if end else None,
        "fail_reason": end.reason.value if end and end.reason else None,
        "message": end.message if end else "",
        "host": start.host,
        "boot_id": start.boot_id,
        "gpu_uuids": list(start.device_uuids),
        "pid_tree": [{"pid": p.pid, "start_ticks": p.start_ticks, "role": p.role} for p in start.processes],
        "ready_s": None if start.ready_ns is None else start.ready_ns * 1e-9,
        "calib_delivery_us_p50": None if calibration is None else calibration.delivery_p50_ns * 1e-3,
        "calib_delivery_us_p99": None if calibration is None else calibration.delivery_p99_ns * 1e-3,
        "identity": dict(start.identity),
    }


def _quantiles(found: Sequence[Quantile]) -> dict[str, Any]:
    """A refused quantile is null, and says so."""
    return {f"p{q.q * 100:g}": {"value": q.shown, "n": q.n, "confidence": q.confidence.value} for q in found}


def _scores(scores: Sequence[Score]) -> list[Mapping[str, str]]:
    table = score_table(scores)
    return [] if table is None else [dict(zip(table.header, row, strict=True)) for row in table.rows]


def _round_source(source: Source) -> str:
    return "engine-step" if source.engine_rounds else "sse-chunk"


def _component(found: Component | None) -> dict[str, Any] | None:
    if found is None:
        return None
    spread = {"between_pct": percent(found.between), "within_pct": percent(found.within), "p_f_test": found.p}
    return {"n_devices": found.n_groups, "n_startups": found.n, **spread}


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [percent(interval.low), percent(interval.high)]


def _both_sides(floor: NoiseFloor | None) -> list[float] | None:
    return None if floor is None else [percent(-floor.value), percent(floor.value)]


def _flips(judgement: Judgement) -> str | None:
    if judgement.p is None:
        return None
    return "exact" if judgement.n_startups <= MAX_STARTUPS_EXACT else f"monte-carlo-{RESAMPLES}"


def _pct(effect: float | None) -> float | None:
    return None if effect is None else percent(effect)

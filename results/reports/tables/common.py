"""The tables that every campaign has, and what a table is.

Layouts follow what the users of such campaigns publish: metric × fixture with control / candidate, startup rows with
their median. Other tables: `contexts`, `corpora`, `pooled`, `profile`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from campaigns.judging.statistics import MAX_STARTUPS_EXACT, RESAMPLES, median_or_none, mismatch_bound
from campaigns.judging.verdicts import counted
from results.reading.groups import Group
from results.reading.levels import ArmLevels
from results.reading.summary import Summary
from results.reports.tables import cells
from results.store.reader import Life


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def metrics(summary: Summary, *, all_quantiles: bool = False) -> Table:
    """One `control / candidate` column per group."""
    names = _metric_rows(summary, all_quantiles)
    rows = tuple((name, *(cell(group) for group in summary.groups)) for name, cell in names)
    return Table("Control / candidate", ("metric", *(group.id for group in summary.groups)), rows, _resolution(summary))


def _metric_rows(summary: Summary, refused_too: bool) -> list[tuple[str, Callable[[Group], str]]]:
    request, single = cells.scope_words(summary.source.request), cells.scope_words(summary.source.round)
    arms = _both_arms
    return [
        (
            f"complete round ms ({request}; median of startup medians)",
            arms(lambda a: a.level_ms, cells.places(summary.resolution_ms)),
        ),
        ("level ratio", lambda g: cells.DASH if g.level_ratio is None else f"{100 * (g.level_ratio - 1):+.2f} %"),
        ("paired effect (median of startup medians)", lambda g: cells.effect(g.judgement.effect)),
        ("95 % interval around the mean of startups", lambda g: cells.interval(g.judgement)),
        *_second_lines(summary),
        ("noise floor", lambda g: cells.floor(g.judgement)),
        ("control / candidate drift between startups", lambda g: " / ".join(map(cells.effect, g.drifts))),
        *_repeated(summary),
        ("verdict", lambda g: cells.verdict(g.judgement)),
        (
            f"candidate round p50 / p90 / p99 ms ({single}; median over requests)",
            lambda g: cells.quantiles(g.candidate.rounds, refused_too=refused_too),
        ),
        (
            f"candidate p50 / p90 / p99 ms over requests ({request})",
            lambda g: cells.quantiles(g.candidate.request_averages, refused_too=refused_too),
        ),
        ("warm TTFT ms", arms(lambda a: a.ttft_ms, 3)),
        ("cold TTFT ms", arms(lambda a: a.cold_ttft_ms, 3)),
        (f"decode tok/s ({clock_words(summary)})", arms(lambda a: a.decode_tokens_per_s, 3)),
        *_energy_lines(summary),
        ("accepted drafts per round", arms(lambda a: a.accepted_drafts_per_round, 6)),
        ("emitted tokens per round (first token included)", arms(lambda a: a.emitted_tokens_per_round, 6)),
        ("acceptance length (bonus token included)", arms(lambda a: a.acceptance_length, 6)),
        ("accepted of proposed", lambda g: " / ".join(cells.share(a.draft_acceptance_rate, 4) for a in _arms(g))),
        (f"exact pairs (E{int(summary.required_exactness)})", exact_pairs),
        ("admissible pairs", lambda g: f"{g.n_admissible_pairs}/{g.n_pairs}"),
    ]


def _repeated(summary: Summary) -> list[tuple[str, Callable[[Group], str]]]:
    """A line per server whose first answer to a prompt and seed was kept apart from its repeats."""
    servers = dict.fromkeys(server for group in summary.groups for server in group.repeats)
    return [(f"repeats of a prompt and seed against the first ({server})", _trend_of(server)) for server in servers]


def _trend_of(server: str) -> Callable[[Group], str]:
    return lambda group: cells.effect(median_or_none(list(group.repeats.get(server, {}).values())))


def _second_lines(summary: Summary) -> list[tuple[str, Callable[[Group], str]]]:
    """Bootstrap and sign flip, from the number of startups on at which they say something."""
    lines: list[tuple[str, Callable[[Group], str]]] = []
    if any(group.judgement.adjusted for group in summary.groups):
        lines.append(("interval that decides (Holm over the fixtures)", lambda g: cells.adjusted(g.judgement)))
    if any(group.judgement.bootstrap for group in summary.groups):
        lines.append(("hierarchical bootstrap, 95 %", lambda g: cells.bounds(g.judgement.bootstrap)))
    if any(group.judgement.p is not None for group in summary.groups):
        drawn = any(g.judgement.n_startups > MAX_STARTUPS_EXACT for g in summary.groups)
        name = f"sign-flip p (Holm{f'; Monte Carlo, {RESAMPLES} flips' if drawn else ''})"
        lines.append((name, lambda g: f"{cells.number(g.judgement.p, 4)} ({cells.number(g.p_holm, 4)})"))
    return lines


def _energy_lines(summary: Summary) -> list[tuple[str, Callable[[Group], str]]]:
    """Beside the speed, where the devices told it."""
    if not any(arm.energy_per_request_j is not None for group in summary.groups for arm in _arms(group)):
        return []
    return [
        ("energy per token J", _both_arms(lambda a: a.energy_per_token_j, 4)),
        ("energy per request J", _both_arms(lambda a: a.energy_per_request_j, 2)),
    ]


def _both_arms(figure: Callable[[ArmLevels], float | None], digits: int) -> Callable[[Group], str]:
    return lambda group: cells.both(figure(group.control), figure(group.candidate), digits)


def _arms(group: Group) -> tuple[ArmLevels, ArmLevels]:
    return group.control, group.candidate


def clock_words(summary: Summary) -> str:
    return "engine clock" if summary.source.engine_averages else "client clock"


def _resolution(summary: Summary) -> str:
    if summary.resolution_ms is None:
        return "Resolution of a request average: unknown (no calibration)."
    return (
        f"Resolution of a request average: {summary.resolution_ms:.6f} ms. * marks a low-confidence quantile, "
        f"{cells.DASH} a refused or unknown one."
    )


def exact_pairs(group: Group) -> str:
    """n/n, and the mismatch rate that so few prompts still allow; repeats of one prompt bound nothing."""
    count = f"{group.n_exact_pairs}/{group.n_pairs}"
    limit = mismatch_bound(group.n_prompts)
    if group.n_exact_pairs < group.n_pairs or limit is None:
        return count
    if group.n_prompts == 1:
        return f"{count} ({counted(group.n_pairs, 'repeat')} of one prompt)"
    return f"{count} ({counted(group.n_prompts, 'prompt')}: mismatch rate ≤ {100 * limit:.1f} %)"


def startups(summary: Summary) -> Table:
    """Every startup of every group with both levels and its effect, then the median of medians."""
    rows: list[tuple[str, ...]] = []
    for group in summary.groups:
        rows += [_startup_row(summary, group, startup) for startup in sorted(group.judgement.startup_medians)]
        level = cells.both(group.control.level_ms, group.candidate.level_ms, cells.places(summary.resolution_ms))
        effect = cells.effect(group.judgement.effect)
        pairs = str(group.n_admissible_pairs)
        rows.append((group.id, "median of startups", level, effect, cells.DASH, pairs))
    header = (
        "fixture",
        "startup",
        "control / candidate ms",
        "paired effect",
        "settle drift, control / candidate",
        "pairs",
    )
    return Table("Startups", header, tuple(rows), f"Levels: {cells.scope_words(summary.source.request)}.")


def _startup_row(summary: Summary, group: Group, startup: int) -> tuple[str, ...]:
    control, candidate = (arm.startup_levels_ms.get(startup) for arm in _arms(group))
    effect = cells.effect(group.judgement.startup_medians[startup])
    if control and candidate and summary.resolution_ms and abs(candidate - control) < summary.resolution_ms:
        effect += " (below-resolution)"
    drift = group.settle_drift.get(startup)
    mark = _beyond(group, drift)
    return (
        group.id,
        str(startup + 1),
        cells.both(control, candidate, cells.places(summary.resolution_ms)),
        effect,
        f"{cells.effect(drift)}{mark} / {cells.effect(group.candidate_settle_drift.get(startup))}",
        str(group.judgement.startup_pairs.get(startup, 0)),
    )


def _beyond(group: Group, drift: float | None) -> str:
    floor = group.judgement.floor
    return " !" if drift is not None and floor is not None and abs(drift) > floor.value else ""


def lives(summary: Summary) -> Table:
    """Every server life, failed ones too: devices, processes, how it ended."""
    header = (
        "startup",
        "attempt",
        "status",
        "ready s",
        "devices",
        "processes (pid@start)",
        "client p50 / p99 us",
        "why",
    )
    return Table("Server lives", header, tuple(_life_row(summary, life) for life in summary.lives))


def _life_row(summary: Summary, life: Life) -> tuple[str, ...]:
    start, end, calibration = life.startup, life.end, life.startup.calibration
    role = f" ({start.role})" if start.role else ""
    delivery = (
        cells.DASH
        if calibration is None
        else f"{calibration.delivery_p50_ns / 1e3:.0f} / {calibration.delivery_p99_ns / 1e3:.0f}"
    )
    return (
        f"{start.startup + 1}{role}",
        str(start.attempt),
        end.status.value if end else "not ended",
        number_or_dash(start.ready_ns),
        ", ".join(start.device_uuids) + (f" on {start.host}" if summary.whereabouts.n_hosts > 1 else ""),
        ", ".join(f"{p.pid}@{p.start_ticks}" for p in start.processes),
        delivery,
        "" if end is None else " ".join(filter(None, (end.reason.value if end.reason else "", end.message))),
    )


def number_or_dash(ns: int | None) -> str:
    return cells.number(None if ns is None else ns * 1e-9, 2)


def order(summary: Summary) -> Table | None:
    """Which arm went first how often, and whether it mattered."""
    rows = []
    for group in summary.groups:
        contrast = group.judgement.contrast
        if contrast is None:
            continue
        signs = f"{contrast.agreeing}/{contrast.n_signs}" if contrast.n_signs else cells.DASH
        first = f"{contrast.n_control_first} / {contrast.n_candidate_first}"
        imbalance = "" if not contrast.imbalance else f"imbalance {contrast.imbalance:+d}"
        rows.append((group.id, first, imbalance, cells.effect(contrast.value), signs, cells.number(contrast.p, 4)))
    header = ("fixture", "control / candidate first", "imbalance", "order contrast", "agreeing neighbours", "p")
    return Table("Order", header, tuple(rows), f"Declared order: {summary.plan['order']}.") if rows else None

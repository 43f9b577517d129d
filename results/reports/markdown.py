"""The report as Markdown that pastes into a pull request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from campaigns.judging.verdicts import counted
from campaigns.plan import differences
from campaigns.printable import one_line, printable
from campaigns.reasons import Reason
from campaigns.records import Failure
from campaigns.remarks import Score
from campaigns.scope import Scope
from results.conditions.health import Determinism, told_once
from results.reading.summary import Summary, bound, is_aa
from results.reports.headline import arms, headline
from results.reports.tables import cells, common, contexts, corpora, profile
from results.reports.tables.common import Table


def markdown(summary: Summary, scores: Sequence[Score] = (), *, all_quantiles: bool = False) -> str:
    parts = [
        *_head(summary),
        *(table_markdown(table) for table in all_tables(summary, scores, all_quantiles=all_quantiles)),
        *(_list(title, lines) for title, lines in notes(summary)),
    ]
    return printable("\n\n".join(parts)) + "\n"


def all_tables(summary: Summary, scores: Sequence[Score], *, all_quantiles: bool = False) -> Iterator[Table]:
    """Every table that the campaign has data for, in the order of reading."""
    if summary.profiled:
        shown = profile.table(summary.profiles), corpora.scores(scores), common.lives(summary)
        yield from (table for table in shown if table is not None)
        return
    yield common.metrics(summary, all_quantiles=all_quantiles)
    optional = (
        corpora.datasets(summary) if summary.plan["corpus"] else None,
        contexts.table(summary),
        corpora.scores(scores),
        common.startups(summary),
        common.order(summary),
        common.lives(summary),
    )
    yield from (table for table in optional if table is not None and table.rows)


def _head(summary: Summary) -> Iterator[str]:
    campaign, judgement, told = summary.campaign, summary.judgement, headline(summary)
    kind = ("Profiled " if summary.profiled else "") + ("A/A" if is_aa(summary) else "A/B")
    yield f"# {told.title}"
    yield f"**{told.sentence}**"
    if told.warnings:
        yield "\n".join(f"- ! {warning}" for warning in told.warnings)
    yield f"**{cells.verdict(judgement)}** · evidence: {summary.evidence.value} · {one_line(judgement.because)}"
    yield (
        f"{kind} campaign `{campaign.campaign_id}`, {campaign.created_utc}, status {summary.status.value}. "
        f"Paired effect {cells.effect(judgement.effect)} over {_startups(summary)} and "
        f"{summary.n_admissible_pairs} admissible of {counted(summary.n_pairs, 'pair')} ({summary.n_planned} planned), "
        f"{summary.n_exact_pairs} exact (E{int(summary.required_exactness)} was required). "
        f"Negative is faster.{_measure(summary)}"
    )


def _startups(summary: Summary) -> str:
    """An unfinished campaign has fixtures with more startups than the ones that its geometric mean can use."""
    shared = counted(summary.judgement.n_startups, "startup")
    each = [group.judgement.n_startups for group in summary.groups]
    if not each or min(each) == max(each) == summary.judgement.n_startups:
        return shared
    return f"{min(each)} to {max(each)} startups of each fixture ({shared} of all)"


def notes(summary: Summary) -> Iterator[tuple[str, list[str]]]:
    """The lists under the tables; empty ones are left out."""
    lists = (
        ("Tags", [", ".join(summary.tags)] if summary.tags else []),
        ("Notes", list(summary.notes)),
        ("Arms", _arms(summary)),
        ("Notes on the verdict", _remarks(summary)),
        ("Excluded", _excluded(summary)),
        ("Schedules", [line for found in summary.schedules for line in found.lines()]),
        ("Speculation", [arm.line for arm in summary.speculation]),
        ("What was missing", list(summary.missing)),
        ("Flags", _flags(summary)),
        ("Failed gates", list(summary.failed_gates)),
        ("Superseded attempts", list(summary.superseded)),
        ("What differed (control / candidate)", [pair.line for pair in summary.differing]),
        ("Determinism over restarts and repeats", _determinism(summary)),
        ("Devices", _devices(summary)),
        ("Failures", [f"{f.utc} {f.reason.value}: {f.message}" for f in told_once(_failures(summary))]),
        ("How it was measured", _method(summary)),
        ("Identity", _identity(summary)),
    )
    yield from ((title, lines) for title, lines in lists if lines)


def _arms(summary: Summary) -> list[str]:
    """Everything that the candidate does otherwise."""
    return list(differences(*arms(summary)))


def _remarks(summary: Summary) -> list[str]:
    """What did not decide and should be known, of the campaign and of its fixtures."""
    own = list(summary.judgement.notes)
    if len(summary.groups) == 1:
        return own
    return own + [f"{group.id}: {note}" for group in summary.groups for note in group.judgement.notes]


def _excluded(summary: Summary) -> list[str]:
    if not summary.n_excluded:
        return [f"none of {counted(summary.n_pairs, 'pair')}"]
    total = f"{summary.n_excluded} of {counted(summary.n_pairs, 'pair')}, both arms of each"
    if summary.n_failed_pairs:
        total += f"; {summary.n_failed_pairs} of them failed: a request got no answer, and nothing was compared"
    return [total, *(f"{reason}: {count}" for reason, count in summary.exclusions.items())]


def _flags(summary: Summary) -> list[str]:
    """Everything that is marked and counted all the same."""
    lines = [f"{flag}: {counted(count, 'request')} (kept)" for flag, count in sorted(summary.flags.items())]
    lines += [f"{flag}: {counted(count, 'pair')} (kept)" for flag, count in sorted(summary.pair_flags.items())]
    far = [f"{g.id}: {counted(g.n_outliers, 'outlying pair')} (kept)" for g in summary.groups if g.n_outliers]
    unequal = [
        f"{group.id}: {counted(group.n_unequal_rounds, 'pair')} whose arms took different numbers of rounds: their "
        "effect is that of the time per decoded token, and times of single rounds do not compare the arms"
        for group in summary.groups
        if group.n_unequal_rounds
    ]
    together = [f"startup {(f.startup or 0) + 1}: {f.reason.value}: {f.message} (kept)" for f in _flagging(summary)]
    return lines + far + unequal + together


def _flagging(summary: Summary) -> list[Failure]:
    return [failure for failure in summary.failures if failure.reason is Reason.COALESCED_ABOVE_CALIBRATION]


def _failures(summary: Summary) -> list[Failure]:
    return [failure for failure in summary.failures if failure not in _flagging(summary)]


def _determinism(summary: Summary) -> list[str]:
    lines = []
    for arm in summary.determinism:
        if arm.n_prompts:
            lines.append(
                f"{arm.role} ({arm.arm}): {arm.n_equal}/{counted(arm.n_prompts, 'prompt')} answered equally "
                f"by all startups{_repeats(arm)}"
            )
            lines += [f"{arm.role}, {difference}" for difference in arm.differing[:10]]
    return lines


def _repeats(arm: Determinism) -> str:
    if not arm.n_repeated:
        return ""
    return f", {arm.n_repeats_equal}/{arm.n_repeated} by all repeats inside a startup"


def _devices(summary: Summary) -> list[str]:
    used = summary.occupancy
    load = [*summary.whereabouts.lines(), *summary.neighbours, *([] if summary.load is None else [summary.load.line])]
    if not used.held_s:
        return load
    line = (
        f"held for {used.held_s:.0f} s by {counted(used.n_startups, 'startup')}: "
        f"{100 * used.measured_s / used.held_s:.0f} % measured requests, {100 * used.warmup_s / used.held_s:.0f} % "
        "warm-ups, the rest starts, checks, pauses and stops"
    )
    energy = [] if used.energy_j is None else [f"{used.energy_j:.0f} J from warm-up to the last request"]
    return [line, *energy, *load, *used.changes]


def _method(summary: Summary) -> list[str]:
    source, limit = summary.source, bound(summary)
    lines = [
        f"headline and levels: {cells.scope_words(source.request)}",
        f"round quantiles: {cells.scope_words(source.round)}, linear (numpy), median over requests",
        f"order {summary.plan['order']}, startup mode {summary.plan['startup_mode']}, "
        f"{summary.plan['warmups']} warm-ups per arm (kept, excluded by phase)",
        f"required exactness E{int(summary.required_exactness)}",
        f"methodology version {summary.campaign.methodology_version}",
    ]
    if summary.looks:
        told = ", ".join(f"{look.verdict} after {counted(look.n_seen, 'startup')}" for look in summary.looks)
        lines.append(f"verdicts asked for meanwhile and at the end: {told}")
    lines += [f"left out of the noise floors: {told}" for told in summary.left_out]
    if source.request is Scope.REQUEST_AVERAGE_CLIENT:
        lines.append("decode time ends with the last content chunk")
    lines.append(summary.energy)
    if summary.clock is not None:
        lines += [summary.clock.line, f"connections: {_connections(summary)}"]
    lines += _manners(summary)
    if limit is not None:
        prompts = counted(sum(group.n_prompts for group in summary.groups), "prompt")
        lines.append(
            f"no mismatch on {prompts} bounds the mismatch rate of other prompts at {100 * limit:.1f} % (95 %); "
            "repeats of a prompt speak of determinism alone"
        )
    return lines


def _manners(summary: Summary) -> list[str]:
    """What the startups' calibrations say of servers that are not as polite as the null server."""
    told = [life.startup.calibration for life in summary.lives if life.startup.calibration is not None]
    found = []
    for words, name in (
        ("Nagle's algorithm on", "nagle_bias_ns"),
        ("two chunks a write", "coalescing_bias_ns"),
        ("chunks cut across segments", "fragments_bias_ns"),
    ):
        if biases := [bias for calibration in told if (bias := getattr(calibration, name)) is not None]:
            found.append(f"{words} {max(biases) / 1e3:.1f} us")
    shares = [calibration.coalesced_share for calibration in told if calibration.coalesced_share is not None]
    lines = [f"largest error of a request average against a server with {', '.join(found)}"] if found else []
    return [*lines, f"chunks that calibration read together: {max(shares):.1%} at most"] if shares else lines


def _connections(summary: Summary) -> str:
    if summary.plan["client"]["keep_alive"]:
        return "kept between requests (client.keep_alive)"
    return "a fresh one for every request, opened before its clock starts"


def _identity(summary: Summary) -> list[str]:
    shown = {name: value for name, value in summary.campaign.fingerprint.items() if value not in ("", "[]", "{}")}
    return [*(f"{name}: `{value}`" for name, value in shown.items()), *_made_weights(summary), *_libraries(summary)]


def _made_weights(summary: Summary) -> list[str]:
    """One line per set of weights that a server made instead of reading them; all lives should share one."""
    sets: dict[str, list[str]] = {}
    for life in summary.lives:
        if made := life.startup.identity.get("made_weights"):
            text = f"random weights, seed {made['seed']}, {made['format']}: made `{made['sha256']}`"
            sets.setdefault(text, []).append(str(life.startup.startup + 1))
    return [f"{text}: startups {', '.join(dict.fromkeys(startups))}" for text, startups in sets.items()]


def _libraries(summary: Summary) -> list[str]:
    """One line per set of mapped libraries: their names are in the JSON report, here it matters whether lives agree."""
    sets: dict[str, list[str]] = {}
    for life in summary.lives:
        hashes = sorted({str(library.get("sha256")) for library in life.startup.identity.get("libraries", ())})
        if hashes:
            digest = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
            sets.setdefault(f"{len(hashes)} mapped libraries, together `{digest}`", []).append(
                str(life.startup.startup + 1)
            )
    return [f"{text}: startups {', '.join(dict.fromkeys(startups))}" for text, startups in sets.items()]


def table_markdown(table: Table) -> str:
    head = [_row(table.header), _row(["---"] * len(table.header))]
    lines = [f"## {one_line(table.title)}", "", *head, *(_row(row) for row in table.rows)]
    return "\n".join([*lines, "", table.note] if table.note else lines)


def _row(row: Sequence[str]) -> str:
    escaped = (one_line(cell).replace("|", "\\|") for cell in row)
    return f"| {' | '.join(escaped)} |"


def _measure(summary: Summary) -> str:
    unequal = any(group.n_unequal_rounds for group in summary.groups)
    return (
        " The effect is that of the time per decoded token: the arms took different numbers of rounds."
        if unequal
        else ""
    )


def _list(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *(f"- {one_line(line)}" for line in lines)])

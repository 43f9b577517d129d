"""Fixtures whose names are context lengths: their table, and the growth from one length to the next."""

from __future__ import annotations

from collections.abc import Sequence

from results.conditions.limits import limit_of
from results.reading.exclusions import context_length
from results.reading.groups import Group
from results.reading.summary import Summary
from results.reports.tables import cells
from results.reports.tables.common import Table


def table(summary: Summary) -> Table | None:
    """Fixtures whose names are context lengths: what pull requests publish, and the growth from one to the next."""
    sized = by_context(summary.groups)
    if len(sized) < 2:
        return None
    limit = limit_of(summary.lives)
    header = (
        "context",
        "control ms",
        "candidate ms",
        "paired effect",
        "95 %",
        "control / candidate tok/s",
        "accepted / emitted per round",
        *(["limit ms"] if limit else []),
        "cold TTFT s",
        "growth",
    )
    rows = tuple(
        (
            f"{length}" if group.seed is None or _one_seed(summary, group) else f"{length}, seed {group.seed}",
            cells.number(group.control.level_ms, 3),
            cells.number(group.candidate.level_ms, 3),
            cells.effect(group.judgement.effect),
            cells.bounds(group.judgement.interval),
            cells.both(group.control.decode_tokens_per_s, group.candidate.decode_tokens_per_s, 3),
            cells.both(group.candidate.accepted_drafts_per_round, group.candidate.emitted_tokens_per_round, 6),
            *([cells.number(limit.ms(length), 3)] if limit else []),
            cells.number(_seconds(group.candidate.cold_ttft_ms), 3),
            _growth(before, (length, group)),
        )
        for before, (length, group) in zip([None, *sized[:-1]], sized, strict=True)
    )
    note = (
        "tok/s: of decoding, at the acceptance that was measured. Growth: the candidate's additional ms over the row "
        "above, and per 1024 tokens."
    )
    return Table("Context", header, rows, f"{note} {limit.words()}" if limit else note)


def by_context(groups: Sequence[Group]) -> list[tuple[int, Group]]:
    """Groups whose fixtures are named after a context length, by that length."""
    lengths = ((context_length(group.fixture), group) for group in groups)
    return sorted(((length, group) for length, group in lengths if length), key=lambda item: item[0])


def _growth(before: tuple[int, Group] | None, now: tuple[int, Group]) -> str:
    if before is None or before[0] == now[0]:
        return cells.DASH
    levels = before[1].candidate.level_ms, now[1].candidate.level_ms
    if levels[0] is None or levels[1] is None:
        return cells.DASH
    added = levels[1] - levels[0]
    return f"{added:+.3f} ({added / ((now[0] - before[0]) / 1024):.6f} per 1024)"


def _one_seed(summary: Summary, group: Group) -> bool:
    return sum(other.fixture == group.fixture for other in summary.groups) == 1


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1e3

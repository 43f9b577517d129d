"""The report as one HTML file: no network, light and dark, phone and paper. Figures are results.reports.figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from campaigns.printable import printable
from campaigns.remarks import Score
from results.conditions.limits import limit_of
from results.reading import frames
from results.reading.exclusions import excluded, grouped
from results.reading.groups import Group
from results.reading.summary import Summary, is_aa
from results.reports import figures
from results.reports.answers import side_by_side
from results.reports.headline import headline
from results.reports.markdown import all_tables, notes
from results.reports.svg import svg
from results.reports.tables import cells
from results.reports.tables.contexts import by_context
from results.store.reader import Reader

_MAX_ROUNDS = 200_000  # read for figures; evenly over the requests
_STARTUPS, _PAIRS = "startup medians", "pair effects"
_Q1 = 2  # the kind of a narrow step in the round table
_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Picture:
    caption: str
    svg: Markup
    leads: bool = False  # stands before the tables: pairs and startups, what the answer is made of


def html(summary: Summary, reader: Reader, scores: Sequence[Score], *, all_quantiles: bool = False) -> str:
    environment = templates(_TEMPLATES)
    environment.filters |= {"code": _code, "slug": _slug}
    drawn = list(pictures(summary, reader))
    return environment.get_template("report.html").render(
        headline=headline(summary),
        summary=summary,
        kind=("Profiled " if summary.profiled else "") + ("A/A" if is_aa(summary) else "A/B"),
        verdict=cells.verdict(summary.judgement),
        effect=cells.effect(summary.judgement.effect),
        floor=cells.floor(summary.judgement),
        tables=list(all_tables(summary, scores, all_quantiles=all_quantiles)),
        leading=[picture for picture in drawn if picture.leads],
        pictures=[picture for picture in drawn if not picture.leads],
        notes=list(notes(summary)),
        answers=side_by_side(summary, reader, scores),
    )


def templates(folder: Path) -> Environment:
    """Whatever a template prints is escaped, and shown where a terminal or a reader would obey it."""
    return Environment(
        loader=FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )


def _shown(value: Any) -> Any:
    if isinstance(value, Markup):
        return Markup(printable(str(value)))  # ours, or escaped already: no tag comes in by this
    return printable(value) if isinstance(value, str) else value


def _slug(title: str) -> str:
    """The place of a section on the page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _code(line: str) -> Markup:
    """A line of the notes, written for Markdown, with its code spans as elements."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(line))))  # escaped before any tag is added


def pictures(summary: Summary, reader: Reader) -> Iterator[Picture]:
    """Every figure that the campaign has data for."""
    for caption, draw, rows in _drawings(summary, reader):
        drawn = svg(draw, caption, rows=rows)
        if drawn is not None:
            leads = caption.endswith((_STARTUPS, _PAIRS))
            yield Picture(caption, Markup(drawn), leads)  # our own SVG, its texts escaped by matplotlib


def _drawings(summary: Summary, reader: Reader) -> Iterator[tuple[str, Callable[[Any], Any], int]]:
    campaign_id, column = summary.campaign.campaign_id, summary.source.level_column
    requests = frames.requests(reader, campaign_id)
    measured = frames.measured(requests)
    pairs = excluded(frames.pairs(reader, campaign_id, requests), summary.failures)
    by_group = grouped(pairs, summary.plan)
    for group in figures.drawable(summary.groups):
        rows = by_group[group.id]
        yield f"{group.id}: {_STARTUPS}", partial(figures.startup_levels, group=group), 1
        yield (
            f"{group.id}: {_PAIRS}",
            partial(figures.pair_effects, group=group, pairs=rows, effect_column=summary.source.effect_column),
            1,
        )
    yield "Control drift over the campaign", partial(figures.control_drift, measured=measured, level_column=column), 1
    for group in figures.drawable(summary.groups):
        yield from _round_drawings(summary, reader, group, by_group[group.id], measured)
        yield f"{group.id}: acceptance", partial(figures.acceptance, group=group), 1
    sized = by_context(summary.groups)
    if len(sized) > 1:
        limit = limit_of(summary.lives)
        yield "Round times over the context", partial(figures.levels_by_context, sized=sized, limit=limit), 1
        yield "Paired effects over the context", partial(figures.effects_by_context, sized=sized), 1
    samples = frames.samples(reader, campaign_id)
    panels = figures.device_panels(samples)
    if panels:
        yield "Devices over the campaign", partial(figures.timeline, samples=samples, panels=panels), len(panels)


def _round_drawings(
    summary: Summary, reader: Reader, group: Group, pairs: pd.DataFrame, measured: pd.DataFrame
) -> Iterator[tuple[str, Callable[[Any], Any], int]]:
    """Of one group alone: rounds of different prompts would make one curve of many."""
    admissible = pairs[pairs.admissible]
    ids = pd.concat([admissible.control_request_id, admissible.candidate_request_id])
    counted = measured[measured.request_id.isin(ids)]
    chosen = _chosen(counted, f"n_{summary.source.round_prefix}_rounds", _MAX_ROUNDS // len(summary.groups))
    rounds = figures.with_context(frames.rounds(reader, chosen), counted)
    rounds = rounds[rounds.kind != _Q1]
    column = f"{summary.source.round_prefix}_ns"
    note = f"{cells.scope_words(summary.source.round)}; {len(chosen)} of {len(counted)} requests"
    yield f"{group.id}: round times ({note})", partial(figures.round_ecdf, rounds=rounds, column=column), 1
    yield f"{group.id}: by context ({note})", partial(figures.round_by_context, rounds=rounds, column=column), 1


def _chosen(counted: pd.DataFrame, size_column: str, limit: int) -> list[int]:
    """Requests whose rounds are drawn: all, or evenly spread pairs of neighbours up to about the limit."""
    step = max(1, int(-(-float(counted[size_column].sum()) // limit)))
    ids = counted.sort_values(["fixture", "seed", "startup", "repeat", "role"]).request_id.tolist()
    return [int(request_id) for i, request_id in enumerate(ids) if (i // 2) % step == 0]
